"""Takes 20 MiB at a time until it is refused, then until it is not."""

import time

import jax
import numpy as np

device = jax.devices()[0]
block = np.ones((20 << 20) // 4, np.float32)
held = []


def grow():
    held.append(jax.device_put(block, device))
    held[-1].block_until_ready()
    float(held[-1][0])


print("limit", device.memory_stats()["bytes_limit"], flush=True)
try:
    while len(held) < 30:
        grow()
except jax.errors.JaxRuntimeError as error:
    held.pop()
    print(str(error).replace("\n", " "))
    print("refused", flush=True)
deadline = time.monotonic() + 60
while device.memory_stats()["bytes_limit"] < 150 << 20:
    assert time.monotonic() < deadline, "the limit was never raised"
    time.sleep(0.05)
grow()
stats = device.memory_stats()
print("limit", stats["bytes_limit"])
assert 90 << 20 < stats["bytes_in_use"] <= stats["peak_bytes_in_use"] <= stats["bytes_limit"]
