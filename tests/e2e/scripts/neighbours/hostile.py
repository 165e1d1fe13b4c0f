"""Programs that the vendor compiles and cannot run safely, through pypjrt: JAX would not make them.
Prints what became of each: `name|refused|why` or `name|ran|what`."""

import sys
from array import array

import pypjrt

F32, S32 = pypjrt.typing.F32.code, pypjrt.typing.S32.code
COUNT = 4096


def sort(compare: str) -> str:
    return f"""module @sorts {{
      func.func public @main(%k: tensor<{COUNT}xf32>, %v: tensor<{COUNT}xi32>)
        -> (tensor<{COUNT}xf32>, tensor<{COUNT}xi32>) {{
      %0:2 = "stablehlo.sort"(%k, %v) ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
          {compare}
          stablehlo.return %r : tensor<i1>
      }}) {{dimension = 0 : i64, is_stable = false}}
        : (tensor<{COUNT}xf32>, tensor<{COUNT}xi32>) -> (tensor<{COUNT}xf32>, tensor<{COUNT}xi32>)
      return %0#0, %0#1 : tensor<{COUNT}xf32>, tensor<{COUNT}xi32> }} }}"""


def compare(direction: str, left: str = "%a", right: str = "%b") -> str:
    types = "(tensor<f32>, tensor<f32>) -> tensor<i1>"
    return f"%r = stablehlo.compare {direction}, {left}, {right} : {types}"


def top_k(rows: int, kept: int, k: int) -> str:
    results = f"tensor<{kept}x{k}xf32>, tensor<{kept}x{k}xi32>"
    return f"""module @top {{ func.func public @main(%a: tensor<{rows}x16xf32>) -> ({results}) {{
      %0:2 = stablehlo.custom_call @TopK(%a) {{called_computations = [@greater]}}
        : (tensor<{rows}x16xf32>) -> ({results})
      return %0#0, %0#1 : {results} }}
    func.func private @greater(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>)
        -> tensor<i1> {{
      {compare("GT")}
      return %r : tensor<i1> }} }}"""


BOUNDED = "tensor<?xi32, #stablehlo.bounds<1024>>"
SORTS = {
    "sort by <=": sort(compare("LE")),
    "sort by a NaN": sort(compare("NE", "%a", "%a")),
    "sort by true": sort("%r = stablehlo.constant dense<true> : tensor<i1>"),
}
OTHERS = {
    "bounded size": f"""module {{
      func.func public @main(%a: tensor<1024xi32>, %n: tensor<i32>) -> {BOUNDED} {{
      %0 = stablehlo.set_dimension_size %a, %n, dim = 0
        : (tensor<1024xi32>, tensor<i32>) -> {BOUNDED}
      return %0 : {BOUNDED} }} }}""",
    "absent replica": """module { func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
      %0 = "stablehlo.collective_permute"(%a) {
          source_target_pairs = dense<[[1, 0]]> : tensor<1x2xi64>}
        : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32> } }""",
    "infeed": """module { func.func public @main() -> tensor<4xf32> {
      %t = stablehlo.create_token : !stablehlo.token
      %0:2 = "stablehlo.infeed"(%t) {infeed_config = "", layout = [[0]]}
        : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)
      return %0#0 : tensor<4xf32> } }""",
    "outfeed": """module { func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
      %t = stablehlo.create_token : !stablehlo.token
      %0 = "stablehlo.outfeed"(%a, %t) {outfeed_config = ""}
        : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token
      return %a : tensor<4xf32> } }""",
    "top of too few": top_k(1, 1, 4096),
    "top of rows that are not there": top_k(4, 4000, 4),
    "top into too few rows": top_k(4000, 4, 4),
}

client = pypjrt.Client.create(sys.argv[1])
with client.device(0) as device:
    # Few distinct keys, some of them no numbers: a comparator that is no order goes astray.
    keys = [float("nan") if n % 5 == 0 else float(n * 7919 % 16) for n in range(COUNT)]
    arguments = [
        client.buffer_from_host(array("f", keys), F32, [COUNT], device),
        client.buffer_from_host(array("i", range(COUNT)), S32, [COUNT], device),
    ]
    for name, code in {**SORTS, **OTHERS}.items():
        try:
            program = client.compile(code)
        except pypjrt.errors.PjrtError as error:
            print(f"{name}|refused|{' '.join(str(error).split())}", flush=True)
            continue
        for _ in range(3):
            places = array("i", bytes(program(*arguments)[1].to_host()))
        kept = "all are there" if sorted(places) == list(range(COUNT)) else "some are lost"
        print(f"{name}|ran|{kept}", flush=True)
