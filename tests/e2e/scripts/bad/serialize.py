"""Writes the machine code that a plugin serializes to a file."""

import sys

import pypjrt

PROGRAM = """
module @add {
  func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %a, %a : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
"""
library, target = sys.argv[1:]
client = pypjrt.Client.create(library, options={"cpu_device_count": 1})
with open(target, "wb") as file:
    file.write(client.compile(PROGRAM).serialize())
