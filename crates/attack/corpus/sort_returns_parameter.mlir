// Ended the compiler, which was given the optimized program with the order of operations that it had.
module { func.func @main(%a: tensor<64xi32>, %b: tensor<64xi32>) -> (tensor<64xi32>, tensor<64xi32>) {
  %0 = "stablehlo.sort"(%a) ({
    ^bb0(%x: tensor<i32>, %y: tensor<i32>):
      %r = stablehlo.compare LT, %x, %y : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %r : tensor<i1>
  }) {dimension = 0 : i64, is_stable = false} : (tensor<64xi32>) -> tensor<64xi32>
  return %0, %b : tensor<64xi32>, tensor<64xi32> } }
