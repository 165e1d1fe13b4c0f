"""A job that holds `--mib` of weights and evaluates on them with `--scratch-mib` of scratch, and
gives nothing away: what it computes can be computed again.

Prints the sums, which must not depend on how often that was.
"""

import argparse

import jax
import jax.numpy as jnp

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--mib", type=int, default=20)
parser.add_argument("--scratch-mib", type=int, default=20)
parser.add_argument("--steps", type=int, default=4)
options = parser.parse_args()

columns = 1024
rows = options.mib * (1 << 20) // 4 // columns
wide = options.scratch_mib * (1 << 20) // 4 // columns


@jax.jit
def weights(seed):
    return jax.random.normal(jax.random.key(seed), (rows, columns))


@jax.jit
def evaluate(weights, batch):
    x = jax.lax.broadcasted_iota(jnp.float32, (wide, 32), 0) * 1e-4 + batch
    # As large as the scratch, and needed whole.
    spread = x @ weights[:32]
    return jnp.max(spread) + jnp.sum(weights)


held = weights(options.seed)
print("ready", flush=True)
for batch in range(options.steps):
    print(f"{batch}: {float(evaluate(held, jnp.float32(batch))).hex()}")
