"""The first product of a new process with weights of its own; nothing of an earlier one may show.

Programs of the CPU plugin keep packed weights and know them by their address, and large arrays of
one job after another lie at the same one: a program that jobs share would multiply with the weights
of the job before.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np

seed = int(sys.argv[1])
size = 3072
x = np.random.default_rng(0).normal(size=(64, size)).astype(np.float32)
weights = np.random.default_rng(1 + seed).normal(size=(size, size)).astype(np.float32)
product = jax.jit(lambda w, x: x @ w)(jnp.asarray(weights) * 1.0, jax.device_put(x))
error = np.max(np.abs(np.asarray(product) - x @ weights))
print("right" if error < 0.1 else f"wrong by {error}")
