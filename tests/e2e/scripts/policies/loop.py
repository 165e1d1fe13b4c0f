"""A job that is always ready: steps of a few milliseconds with donated state, some in flight.

Prints the bits of its state after `--steps`, or goes on until it is killed if there are none.
"""

import argparse
import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int, default=512)
parser.add_argument("--steps", type=int, default=0)
parser.add_argument("--read-every", type=int, default=5, help="0: never")
options = parser.parse_args()


@partial(jax.jit, donate_argnums=0)
def step(weights, x):
    # Not the argument itself: the CPU plugin recognizes packed weights by their address, and takes
    # what was donated in place for what it was before.
    weights = weights * 0.9999
    y = jnp.tanh(x @ weights)
    return weights - 1e-3 * (x.T @ y) / x.shape[0], y.sum()


key = jax.random.key(0)
weights = jax.random.normal(key, (options.size, options.size)) * 0.01
x = jax.random.normal(key, (256, options.size))
weights, last = step(weights, x)
last.block_until_ready()
print("ready", flush=True)
for number in itertools.count(1):
    weights, last = step(weights, x)
    if options.read_every and number % options.read_every == 0:
        last.block_until_ready()
    if number == options.steps:
        break
bits = np.asarray(weights).view(np.uint32).sum(dtype=np.uint64)
print(f"bits {int(bits):016x}", flush=True)
