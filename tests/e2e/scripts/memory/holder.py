"""A job that holds much and needs more while it computes: about `--mib` of state, which each step
takes over in place, and `--scratch-mib` of scratch while the step runs.

Prints the bits of its state at the end, which must not depend on where it was meanwhile.
"""

import argparse
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--mib", type=int, default=60)
parser.add_argument("--scratch-mib", type=int, default=300)
parser.add_argument("--arrays", type=int, default=8)
parser.add_argument("--steps", type=int, default=4)
options = parser.parse_args()

columns = 1024
rows = options.mib * (1 << 20) // 4 // columns // options.arrays
wide = options.scratch_mib * (1 << 20) // 4 // columns


@partial(jax.jit, donate_argnums=0)
def step(state, seed):
    x = jax.lax.broadcasted_iota(jnp.float32, (wide, 32), 0) * 1e-4 + seed
    # As large as the scratch, and needed whole: its largest element decides the next state.
    spread = x @ state[0][:32]
    largest = jnp.max(spread)
    return [a * 0.999 + largest * 1e-3 for a in state], largest


@jax.jit
def start(seed):
    keys = jax.random.split(jax.random.key(seed), options.arrays)
    return [jax.random.normal(key, (rows, columns)) for key in keys]


state = start(options.seed)
print("ready", flush=True)
for number in range(options.steps):
    state, loss = step(state, jnp.float32(number))
print(f"loss {float(loss):.6f}", flush=True)
bits = [np.asarray(a).view(np.uint32).sum(dtype=np.uint64) for a in state]
print("bits", *[f"{int(b):016x}" for b in bits])
