"""Every element type: to the device, through a program, and back."""

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402

from report import report  # noqa: E402

values = np.arange(-8, 8)
for name in (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 int4 uint4 float16 bfloat16 float32 "
    "float64 complex64 complex128 float8_e4m3fn float8_e5m2 float8_e4m3b11fnuz"
).split():
    dtype = jnp.dtype(name)
    host = (values % 16 if name.startswith("uint") else values).astype(dtype)
    there = jax.device_put(host)
    assert there.dtype == dtype
    assert np.asarray(there).tobytes() == host.tobytes(), name
    report(f"{name} back", there)
    report(f"{name} reversed", jax.jit(lambda a: a[::-1].reshape(4, 4).T)(there))

bf16 = jax.random.normal(jax.random.key(0), (64, 64), jnp.bfloat16)
report("bfloat16 product", bf16 @ bf16)
report("bfloat16 gradient", jax.grad(lambda a: (a @ a).astype(jnp.float32).sum())(bf16))
small = jnp.arange(-8, 8, dtype=jnp.int4)
report("int4 sum", (small.astype(jnp.int8) * 3).astype(jnp.int4))
report("int4 odd length", jax.jit(lambda a: a[:7])(small))
report("float8 cast", jnp.linspace(-3, 3, 33).astype(ml_dtypes.float8_e4m3fn))
