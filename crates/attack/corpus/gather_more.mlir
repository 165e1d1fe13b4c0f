// Returned what other jobs had left in memory: one replica gives 8 numbers, and 16 were returned.
module { func.func @main(%a: tensor<8xf32>) -> tensor<16xf32> {
  %0 = "stablehlo.all_gather"(%a) {all_gather_dim = 0 : i64, replica_groups = dense<[[0]]> : tensor<1x1xi64>} : (tensor<8xf32>) -> tensor<16xf32>
  return %0 : tensor<16xf32> } }
