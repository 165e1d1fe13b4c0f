"""Serves with weights of `--mib` that no step overwrites, until the file `--until` is there.

Prints the bits of the last answer, which is the same however often it was asked for.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--mib", type=int, default=40)
parser.add_argument("--until", type=Path, required=True)
options = parser.parse_args()

columns = 1024
rows = options.mib * (1 << 20) // 4 // columns
weights = jax.random.normal(jax.random.key(options.seed), (rows, columns))
answer = jax.jit(lambda weights, x: jnp.sum(weights * x, axis=1))
print("ready", flush=True)
while True:
    last = np.asarray(answer(weights, jnp.float32(0.5)))
    if options.until.exists():
        break
print("bits", f"{int(last.view(np.uint32).sum(dtype=np.uint64)):016x}")
