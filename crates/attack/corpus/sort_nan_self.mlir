// Ended the device host (SIGSEGV): true of NaNs compared with themselves.
module { func.func @main(%k: tensor<4096xf32>, %v: tensor<4096xi32>) -> (tensor<4096xf32>, tensor<4096xi32>) {
  %0:2 = "stablehlo.sort"(%k, %v) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
      %r = stablehlo.compare NE, %a, %a : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %r : tensor<i1>
  }) {dimension = 0 : i64, is_stable = false} : (tensor<4096xf32>, tensor<4096xi32>) -> (tensor<4096xf32>, tensor<4096xi32>)
  return %0#0, %0#1 : tensor<4096xf32>, tensor<4096xi32> } }
