"""Does one thing until it is killed or something goes wrong, which it then raises."""

import itertools
import sys

import jax
import jax.numpy as jnp
import numpy as np


def compile_again_and_again():
    for i in itertools.count():
        yield jax.jit(lambda x, i=i: jnp.sort(jnp.tanh(x @ x + i), axis=0))(jnp.ones((64, 64)))


def train_and_read():
    step = jax.jit(lambda w: jnp.tanh(w @ w) * 0.5, donate_argnums=0)
    w = jnp.eye(256)
    while True:
        w = step(w)
        yield float(w[0, 0])


def launch_and_never_read():
    step = jax.jit(lambda w: jnp.tanh(w @ w) * 0.5, donate_argnums=0)
    w = jnp.eye(256)
    while True:
        w = step(w)
        yield None


def copy_back_and_forth():
    host = np.ones(16 << 20, np.float32)
    while True:
        yield np.asarray(jax.device_put(host) + 1)


def wait_for_a_long_iteration():
    """Seconds in one launch that has to be waited for."""
    turn = jax.jit(lambda n: jax.lax.fori_loop(0, n, lambda i, x: x * 0.999 + i, jnp.float32(0)))
    yield float(turn(1000))
    while True:
        yield float(turn(1_000_000_000))


def hold_memory():
    held = jax.block_until_ready([jnp.full((1 << 20,), i, jnp.float32) for i in range(32)])
    while True:
        yield float(held[0][0])


MODES = {
    "compile": compile_again_and_again,
    "steps": train_and_read,
    "dispatch": launch_and_never_read,
    "transfer": copy_back_and_forth,
    "wait": wait_for_a_long_iteration,
    "hold": hold_memory,
}

for count, _ in enumerate(MODES[sys.argv[1]]()):
    if count == 0:
        print("ready", flush=True)
