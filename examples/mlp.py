"""Trains a multilayer perceptron (Flax linen, Optax) to tell noisy clusters of points apart."""

import argparse
import struct

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.training import train_state

BATCH = 512
FEATURES = 64
CLASSES = 8


class MLP(nn.Module):
    @nn.compact
    def __call__(self, x):
        for width in (512, 512, 256):
            x = nn.relu(nn.Dense(width)(x))
        return nn.Dense(CLASSES)(x)


def make_data(seed, size):
    """Noisy points around one random centre per class."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(CLASSES, FEATURES))
    labels = rng.integers(CLASSES, size=size)
    points = centres[labels] + 4.0 * rng.normal(size=(size, FEATURES))
    return points.astype(np.float32), labels.astype(np.int32)


def train_step(state, points, labels):
    def loss_fn(params):
        logits = state.apply_fn(params, points)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps

    model = MLP()
    params = model.init(jax.random.key(0), jnp.zeros((1, FEATURES)))
    state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-3))
    step = jax.jit(train_step, donate_argnums=0)

    points, labels = make_data(seed=0, size=BATCH * 16)
    for i in range(steps):
        batch = slice(i % 16 * BATCH, (i % 16 + 1) * BATCH)
        state, loss = step(state, points[batch], labels[batch])
        if (i + 1) % 10 == 0 or i + 1 == steps:
            print(f"step {i + 1}/{steps} loss {float(loss):.4f}", flush=True)

    loss = float(loss)
    print(f"final loss {loss:.6f} bits {struct.pack('>f', loss).hex()}", flush=True)


if __name__ == "__main__":
    main()
