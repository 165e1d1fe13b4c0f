"""Arrays seen from the host without JAX: numpy, memoryview, dlpack, both ways."""

import jax
import jax.numpy as jnp
import numpy as np

from report import raises, report

x = jnp.arange(24, dtype=jnp.float32).reshape(4, 6) * 1.5
device = x.devices()

view = memoryview(x)
assert (view.shape, view.format.lstrip("=")) == ((4, 6), "f"), (view.shape, view.format)
assert view.readonly
report("memoryview", np.frombuffer(view.tobytes(), np.float32))

array = np.asarray(x)
raises(ValueError, "read-only", array.__setitem__, (0, 0), 1.0)
report("numpy", array)

report("dlpack out", np.from_dlpack(x))
cpu = jax.devices("cpu")[0]
report("dlpack in", jax.dlpack.from_dlpack(np.arange(12, dtype=np.int32)))

# A view keeps its data when the array is gone.
y = x + 1
kept = np.asarray(y)
expected = kept.copy()
del y
for _ in range(20):
    (x * 2).block_until_ready()
assert (kept == expected).all()
report("kept", kept)

# Between this device and JAX's own CPU, and back.
over = jax.device_put(x, cpu)
assert over.devices() == {cpu}
back = jax.device_put(over * 2, *device)
assert back.devices() == device
report("there and back", back)

# Memory that is not contiguous, not aligned, reversed, empty, or changed right after the call.
base = np.arange(10_000, dtype=np.float32)
report("strided", jnp.asarray(base.reshape(100, 100)[::3, 1::7]))
report("unaligned", jnp.asarray(base[1:5001]))
report("reversed", jnp.asarray(base[::-1]))
report("transposed", jnp.asarray(base.reshape(100, 100).T))
report("empty", jnp.asarray(base[:0]))
# (`copy=True`, because without it JAX allows itself to alias the caller's memory.)
put = jnp.array(base, copy=True)
base[:] = -1
report("changed afterwards", put)
report("scalar", jnp.asarray(np.float64(0.1)))

# Reading ahead.
z = jnp.sin(x)
z.copy_to_host_async()
report("copy_to_host_async", z)
report("many", jax.device_get([x + i for i in range(50)]))
