"""Deleted arrays: an error for those who read them, no harm for work in flight."""

import gc

import jax
import jax.numpy as jnp
import numpy as np

from report import raises, report

x = jnp.arange(1_000_000.0)
y = jnp.sin(x)
z = (y * 2).sum()
y.delete()
assert y.is_deleted()
y.delete()  # twice is harmless
raises(RuntimeError, "deleted", lambda: np.asarray(y))
raises(RuntimeError, "deleted", lambda: y + 1)
raises(RuntimeError, "deleted", y.block_until_ready)
report("in flight", z)
report("source", x[:10])

# Deleted while a copy to the host is under way.
w = jnp.cos(x)
w.copy_to_host_async()
w.delete()

# Thousands of arrays that come and go.
total = jnp.float32(0)
for i in range(2000):
    total = total + jnp.float32(i)
gc.collect()
report("total", total)
live = len(jax.live_arrays())
assert live < 20, live
