"""Runs small steps until it is ended; says why if it ends by itself."""

import sys

import jax
import jax.numpy as jnp


@jax.jit
def step(x):
    return x * 0.5 + 1


x = step(jnp.zeros(8))
x.block_until_ready()
print("ready", flush=True)
while True:
    try:
        x = step(x)
        x.block_until_ready()
    except Exception as error:
        print(f"ended: {error}")
        sys.exit()
