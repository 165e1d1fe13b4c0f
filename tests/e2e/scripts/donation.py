"""Donated arguments: reused in place, gone afterwards, and never the caller's own memory."""

import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from report import raises, report


@partial(jax.jit, donate_argnums=0)
def step(state, x):
    return {"w": state["w"] * 0.99 + x.mean(), "n": state["n"] + 1}, (state["w"] * x).sum()


state = {"w": jnp.linspace(0.0, 1.0, 4096).reshape(64, 64), "n": jnp.int32(0)}
first = state["w"]
x = np.arange(4096, dtype=np.float32).reshape(64, 64) / 4096
for _ in range(50):
    state, total = step(state, x)
assert int(state["n"]) == 50
report("state", state)
report("total", total)

# The donated array is gone at once, and says so.
assert first.is_deleted()
raises(RuntimeError, "deleted", lambda: np.asarray(first))
raises((RuntimeError, ValueError), "donated", step, {"w": first, "n": jnp.int32(0)}, x)

# An array made from the caller's memory may be donated; the caller's memory stays as it was.
mine = np.ones((256, 256), np.float32)
put = jax.device_put(mine)
result = jax.jit(lambda a: a * 3 + 1, donate_argnums=0)(put)
report("from numpy", result)
assert (mine == 1).all()

# Donating what is also passed undonated is refused, and refusing it changes nothing.
both = jnp.arange(8.0)
add = jax.jit(lambda a, b: a + b, donate_argnums=0)
raises((RuntimeError, ValueError), "donate", add, both, both)
assert not both.is_deleted()
report("both", both)

# Nothing fits the donated shape: a warning, and the array lives on or not as JAX decides.
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    report("unusable", jax.jit(lambda a: a[:3], donate_argnums=0)(jnp.arange(10.0)))
assert any("donated buffers were not usable" in str(w.message) for w in caught)
