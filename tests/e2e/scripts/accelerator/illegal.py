"""A program that breaks its device: the stand-in for CUDA knows it by its name."""

import jax
import jax.numpy as jnp


@jax.jit
def illegal_address(x):
    return x + 1


print(illegal_address(jnp.zeros(4)))
