"""Trains a small transformer (Flax linen, Optax) to continue periodic sequences of symbols."""

import argparse
import struct

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.training import train_state

BATCH = 16
LENGTH = 48
VOCABULARY = 64
WIDTH = 128
HEADS = 4
LAYERS = 2


class Block(nn.Module):
    @nn.compact
    def __call__(self, x, mask):
        y = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=HEADS)(y, y, mask=mask)
        y = nn.LayerNorm()(x)
        return x + nn.Dense(WIDTH)(nn.gelu(nn.Dense(4 * WIDTH)(y)))


class Transformer(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        positions = nn.Embed(LENGTH, WIDTH)(jnp.arange(tokens.shape[1]))
        x = nn.Embed(VOCABULARY, WIDTH)(tokens) + positions
        mask = nn.make_causal_mask(tokens)
        for _ in range(LAYERS):
            x = Block()(x, mask)
        return nn.Dense(VOCABULARY)(nn.LayerNorm()(x))


def make_data(seed, size):
    """Random words of 3 to 8 symbols, each repeated to the end of its line."""
    rng = np.random.default_rng(seed)
    lines = np.empty((size, LENGTH + 1), np.int32)
    for line in lines:
        word = rng.integers(VOCABULARY, size=rng.integers(3, 9))
        line[:] = np.resize(word, LENGTH + 1)
    return lines


def train_step(state, lines):
    def loss_fn(params):
        logits = state.apply_fn(params, lines[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, lines[:, 1:]).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    steps = parser.parse_args().steps

    model = Transformer()
    params = model.init(jax.random.key(0), jnp.zeros((1, LENGTH), jnp.int32))
    schedule = optax.warmup_cosine_decay_schedule(0.0, 2e-3, 20, max(steps, 21))
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))
    state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=optimizer)
    step = jax.jit(train_step, donate_argnums=0)

    lines = make_data(seed=0, size=BATCH * 16)
    for i in range(steps):
        batch = slice(i % 16 * BATCH, (i % 16 + 1) * BATCH)
        state, loss = step(state, lines[batch])
        if (i + 1) % 10 == 0 or i + 1 == steps:
            print(f"step {i + 1}/{steps} loss {float(loss):.4f}", flush=True)

    loss = float(loss)
    print(f"final loss {loss:.6f} bits {struct.pack('>f', loss).hex()}", flush=True)


if __name__ == "__main__":
    main()
