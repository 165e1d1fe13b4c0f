"""Matrix products with weights that change, against numpy; prints how many of them are wrong.

A program that kept anything of the arrays it saw, and knew them by their address, would be caught
here: new weights lie where older ones lay, donated weights are updated in place, arrays are given
back and come again, and jobs one after another find their arrays at the same addresses.
"""

import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np

seed, rounds = int(sys.argv[1]), int(sys.argv[2])
# Smaller products were never seen to go wrong.
size = 1024
draw = np.random.default_rng(seed)
x = draw.normal(size=(64, size)).astype(np.float32)
on_device = jax.device_put(x)


def weights():
    return draw.normal(size=(size, size)).astype(np.float32)


@jax.jit
def product(x, w):
    return x @ w


@functools.partial(jax.jit, donate_argnums=0)
def update(w, change):
    return w + change


@functools.partial(jax.jit, donate_argnums=0)
def step(w, change, x):
    w = w + change
    return w, x @ w


def is_wrong(result, w) -> bool:
    return bool(np.max(np.abs(np.asarray(result) - x @ w)) > 0.05)


wrong = {"first": 0, "new": 0, "computed": 0, "updated": 0, "in one step": 0, "given back": 0}
print("ready", flush=True)

# The first product of this process, at addresses that an earlier job may have used.
w = weights()
wrong["first"] += is_wrong(product(on_device, jnp.asarray(w) * 1.0), w)

kept, kept_on_device = weights(), None
kept_on_device = jax.device_put(kept)
donated, donated_on_device = weights(), None
donated_on_device = jax.device_put(donated)
for _ in range(rounds):
    w = weights()
    wrong["new"] += is_wrong(product(on_device, jax.device_put(w)), w)
    wrong["computed"] += is_wrong(product(on_device, jnp.asarray(w) * 2.0), w * 2.0)
    change = weights()
    donated_on_device = update(donated_on_device, change)
    donated = donated + change
    wrong["updated"] += is_wrong(product(on_device, donated_on_device), donated)
    donated_on_device, result = step(donated_on_device, change, on_device)
    donated = donated + change
    wrong["in one step"] += is_wrong(result, donated)
    wrong["given back"] += is_wrong(product(on_device, kept_on_device), kept)
    kept_on_device.delete()
    kept_on_device = jax.device_put(kept)

total = sum(wrong.values())
print(f"{total} wrong: {wrong}" if total else "none wrong")
