"""Holds `--mib` in pinned memory of the host, as an optimizer does that does not fit its device.

It works on a part of it at a time.
"""

import argparse

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

parser = argparse.ArgumentParser()
parser.add_argument("--mib", type=int, default=100)
parser.add_argument("--parts", type=int, default=20)
options = parser.parse_args()

device = jax.devices()[0]
there = SingleDeviceSharding(device, memory_kind="pinned_host")
here = SingleDeviceSharding(device)
length = options.mib * (1 << 20) // 4 // options.parts
parts = [jax.device_put(np.full(length, part, np.float32), there) for part in range(options.parts)]
step = jax.jit(lambda x: x * 2 + 1)
for number, part in enumerate(parts):
    parts[number] = jax.device_put(step(jax.device_put(part, here)), there)
for number, part in enumerate(parts):
    assert part.sharding.memory_kind == "pinned_host"
    assert np.all(np.asarray(part) == 2 * number + 1), number
print("right")
