"""An iteration that never ends, and that the compiler cannot know of."""

import jax
import jax.numpy as jnp


@jax.jit
def endless_loop(x):
    return jax.lax.while_loop(lambda c: c[0] >= 0, lambda c: (c[0] * 0.5, c[1] + 1), (x, 0))


print("ready", flush=True)
print(float(endless_loop(jnp.float32(1.0))[0]), flush=True)
