"""A launch returns before it ran; results come in order; an error comes when it is read."""

import jax
import jax.numpy as jnp
import numpy as np

from report import report


@jax.jit
def slow(x):
    return jax.lax.fori_loop(0, 60, lambda _, a: jnp.tanh(a @ a) * 0.5, x)


x = jnp.ones((384, 384)) / 384 + jnp.eye(384) * 0.1
slow(x).block_until_ready()

results = []
for _ in range(12):
    x = slow(x)
    results.append(x)
# Twelve launches of many milliseconds each cannot have ended already.
assert not results[-1].is_ready()
# Dropped while in flight, in the middle of a chain.
del results[3], results[5]
report("last", x)
assert all(result.is_ready() for result in results)
report("first", results[0])

many = [jnp.full((16,), i) * 2 for i in range(300)]
report("many", np.stack(jax.device_get(many)))
jax.block_until_ready(many)
jax.effects_barrier()
