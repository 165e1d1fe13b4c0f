"""Steps of one program, one after the other, each read; until it is killed.

Too large for the vendor's plugin to run them at once, whatever else runs in their lane."""

import jax
import jax.numpy as jnp

step = jax.jit(lambda w: jnp.tanh(jnp.tanh(w @ w) @ w) * 0.5)
w, count = jnp.eye(512), 0
while True:
    float(step(w)[0, 0])
    count += 1
    if count == 20:
        print("ready", flush=True)
