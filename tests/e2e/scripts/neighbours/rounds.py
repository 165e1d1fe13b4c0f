"""Trains the same small model from the same start, round after round, until a file is there; then
says with which bits the rounds ended, and how many there were."""

import hashlib
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

seed, stop, steps = int(sys.argv[1]), Path(sys.argv[2]), 30


def loss(w, x, y):
    hidden = jnp.tanh(x @ w[0])
    return jnp.mean((hidden @ w[1] - y) ** 2)


@jax.jit
def step(w, x, y):
    return jax.tree.map(lambda p, g: p - 0.1 * g, w, jax.grad(loss)(w, x, y))


def train() -> str:
    keys = jax.random.split(jax.random.key(seed), 4)
    w = [jax.random.normal(keys[0], (64, 96)), jax.random.normal(keys[1], (96, 8))]
    x, y = jax.random.normal(keys[2], (128, 64)), jax.random.normal(keys[3], (128, 8))
    for _ in range(steps):
        w = step(w, x, y)
    return hashlib.sha256(b"".join(np.asarray(p).tobytes() for p in w)).hexdigest()


digests, rounds = {train()}, 1
print("ready", flush=True)
while not stop.exists():
    digests.add(train())
    rounds += 1
print(" ".join(sorted(digests)), flush=True)
print(f"{rounds} rounds", file=sys.stderr)
