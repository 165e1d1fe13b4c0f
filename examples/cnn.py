"""Trains a convolutional network (Flax nnx, Optax) to tell noisy patterns apart."""

import argparse
import struct
from functools import partial

import numpy as np
import optax
from flax import nnx

BATCH = 64
SIZE = 20
CLASSES = 10


class CNN(nnx.Module):
    def __init__(self, rngs):
        self.conv1 = nnx.Conv(1, 16, kernel_size=(3, 3), rngs=rngs)
        self.norm1 = nnx.BatchNorm(16, rngs=rngs)
        self.conv2 = nnx.Conv(16, 32, kernel_size=(3, 3), rngs=rngs)
        self.dense = nnx.Linear(32 * (SIZE // 4) ** 2, 64, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.head = nnx.Linear(64, CLASSES, rngs=rngs)

    def __call__(self, x):
        pool = partial(nnx.avg_pool, window_shape=(2, 2), strides=(2, 2))
        x = pool(nnx.relu(self.norm1(self.conv1(x))))
        x = pool(nnx.relu(self.conv2(x)))
        x = nnx.relu(self.dense(x.reshape(x.shape[0], -1)))
        return self.head(self.dropout(x))


def make_data(seed, size):
    """One random picture per class, each time with other noise."""
    rng = np.random.default_rng(seed)
    patterns = rng.normal(size=(CLASSES, SIZE, SIZE, 1))
    labels = rng.integers(CLASSES, size=size)
    images = patterns[labels] + 2.0 * rng.normal(size=(size, SIZE, SIZE, 1))
    return images.astype(np.float32), labels.astype(np.int32)


@partial(nnx.jit, donate_argnums=(0, 1))
def train_step(model, optimizer, images, labels):
    def loss_fn(model):
        logits = model(images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    loss, grads = nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, grads)
    return loss


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    steps = parser.parse_args().steps

    model = CNN(nnx.Rngs(0))
    model.train()
    optimizer = nnx.Optimizer(model, optax.sgd(0.02, momentum=0.9), wrt=nnx.Param)

    images, labels = make_data(seed=0, size=BATCH * 16)
    for i in range(steps):
        batch = slice(i % 16 * BATCH, (i % 16 + 1) * BATCH)
        loss = train_step(model, optimizer, images[batch], labels[batch])
        if (i + 1) % 10 == 0 or i + 1 == steps:
            print(f"step {i + 1}/{steps} loss {float(loss):.4f}", flush=True)

    loss = float(loss)
    print(f"final loss {loss:.6f} bits {struct.pack('>f', loss).hex()}", flush=True)


if __name__ == "__main__":
    main()
