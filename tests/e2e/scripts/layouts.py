"""Layouts other than the default one: data reads back right, and programs may choose theirs."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Format, Layout
from jax.sharding import SingleDeviceSharding

from report import report

sharding = SingleDeviceSharding(jax.devices()[0])
x = np.arange(35, dtype=np.float32).reshape(5, 7)
columns = Format(Layout((1, 0)), sharding)

put = jax.device_put(x, columns)
assert put.format.layout.major_to_minor == (1, 0), put.format
np.testing.assert_array_equal(np.asarray(put), x)
report("put", put)
report("used", put @ put.T)
report("default again", jax.device_put(put, Format(Layout((0, 1)), sharding)))

cube = np.arange(2 * 3 * 4, dtype=np.int32).reshape(2, 3, 4)
for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)):
    placed = jax.device_put(cube, Format(Layout(order), sharding))
    assert placed.format.layout.major_to_minor == order
    np.testing.assert_array_equal(np.asarray(placed), cube)
    report(f"cube {order}", placed + 1)

out = jax.jit(lambda a: a * 2, out_shardings=columns)(x)
assert out.format.layout.major_to_minor == (1, 0), out.format
np.testing.assert_array_equal(np.asarray(out), x * 2)
report("output", out)

auto = Format(Layout.AUTO)
compiled = (
    jax.jit(lambda a, b: a.T @ b, in_shardings=auto, out_shardings=auto)
    .lower(jax.ShapeDtypeStruct((5, 7), jnp.float32), jax.ShapeDtypeStruct((5, 3), jnp.float32))
    .compile()
)
formats, _ = compiled.input_formats
arguments = [jax.device_put(a, f) for a, f in zip((x, x[:, :3]), formats)]
result = compiled(*arguments)
np.testing.assert_allclose(np.asarray(result), x.T @ x[:, :3], rtol=1e-6)
report("auto", result)
print("auto formats", [f.layout.major_to_minor for f in formats])
