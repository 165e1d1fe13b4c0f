"""A callback that waits until a file exists: `waits.py FILE [seconds until it gives up]`.

Prints what became of the launch, and that the job goes on after it.
"""

import os
import sys
import time

import jax
import jax.numpy as jnp

path = sys.argv[1]
give_up = time.monotonic() + float(sys.argv[2] if len(sys.argv) > 2 else 300)


def wait(x):
    print("waits", flush=True)
    while not os.path.exists(path) and time.monotonic() < give_up:
        time.sleep(0.01)
    return x + 1


@jax.jit
def step(x):
    # Enough work that the device does not take it for a trifle and runs it in order with others.
    x = x @ x
    return jax.pure_callback(wait, jax.ShapeDtypeStruct(x.shape, x.dtype), x).sum()


x = jnp.eye(128)
print("ready", flush=True)
try:
    print("returned", float(step(x)), flush=True)
except jax.errors.JaxRuntimeError as error:
    print("failed", str(error).splitlines()[0], flush=True)
print("goes on", float(jax.jit(lambda x: (x @ x).sum())(x)), flush=True)
