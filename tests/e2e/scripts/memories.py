"""Memory kinds of a device: the host's own beside the device's."""

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from report import report

device = jax.devices()[0]
kinds = sorted(memory.kind for memory in device.addressable_memories())
print("kinds", kinds, "default", device.default_memory().kind)

x = np.arange(1000, dtype=np.float32)
for kind in kinds:
    there = jax.device_put(x, SingleDeviceSharding(device, memory_kind=kind))
    assert there.sharding.memory_kind == kind
    report(kind, there)
    back = jax.device_put(there, SingleDeviceSharding(device))
    assert back.sharding.memory_kind == device.default_memory().kind
    report(f"{kind} and back", back * 2)
