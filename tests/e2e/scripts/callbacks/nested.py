"""Callbacks that use the device themselves, also with programs that call back, and from threads."""

import threading

import jax
import jax.numpy as jnp
import numpy as np

device = jax.devices()[0]
like = jax.ShapeDtypeStruct((64, 64), jnp.float32)


@jax.jit
def product(x):
    return x @ x


@jax.jit
def inner(x):
    return jax.pure_callback(lambda v: np.asarray(v) + 1, like, x @ x)


def uses_device(v):
    with jax.default_device(device):
        x = jax.device_put(np.asarray(v), device)
        return np.asarray(product(x)) + np.asarray(kept).sum()


def calls_back_again(v):
    with jax.default_device(device):
        return np.asarray(inner(jax.device_put(np.asarray(v), device)))


@jax.jit
def outer(x):
    x = jax.pure_callback(uses_device, like, x @ x)
    return jax.pure_callback(calls_back_again, like, x @ x)


# Read in the callback, while a launch of the same session is under way.
kept = jnp.arange(8.0)
x = jnp.eye(64)
print("nested", float(outer(x)[0, 0]), float(outer(x)[0, 1]))

results = {}


def work(number):
    @jax.jit
    def step(x):
        return jax.pure_callback(lambda v: np.asarray(v) * number, like, x @ x)

    y = x
    for _ in range(5):
        y = step(y)
    results[number] = float(y[0, 0])


threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("threads", sorted(results.items()))
