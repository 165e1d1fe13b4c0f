// Wrote behind its array: elements that share a byte were taken for a byte each.
module { func.func @main(%a: tensor<1000xui2>) -> tensor<1000xui2> {
  %0 = "stablehlo.sort"(%a) ({
    ^bb0(%x: tensor<ui2>, %y: tensor<ui2>):
      %r = stablehlo.compare LT, %x, %y : (tensor<ui2>, tensor<ui2>) -> tensor<i1>
      stablehlo.return %r : tensor<i1>
  }) {dimension = 0 : i64, is_stable = true} : (tensor<1000xui2>) -> tensor<1000xui2>
  return %0 : tensor<1000xui2> } }
