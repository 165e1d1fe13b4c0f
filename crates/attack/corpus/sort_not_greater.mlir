// Ended the device host (SIGSEGV): no strict order, so that the sort ran out of its array.
module { func.func @main(%k: tensor<4096xi32>, %v: tensor<4096xi32>) -> (tensor<4096xi32>, tensor<4096xi32>) {
  %0:2 = "stablehlo.sort"(%k, %v) ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>, %c: tensor<i32>, %d: tensor<i32>):
      %r = stablehlo.compare LE, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %r : tensor<i1>
  }) {dimension = 0 : i64, is_stable = false} : (tensor<4096xi32>, tensor<4096xi32>) -> (tensor<4096xi32>, tensor<4096xi32>)
  return %0#0, %0#1 : tensor<4096xi32>, tensor<4096xi32> } }
