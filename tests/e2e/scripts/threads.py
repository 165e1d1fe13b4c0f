"""Three threads, each with its own little training, one client."""

import threading

import jax
import jax.numpy as jnp
import numpy as np

from report import report


@jax.jit
def step(w, x):
    loss, grad = jax.value_and_grad(lambda w: jnp.tanh(x @ w).var())(w)
    return w - 0.1 * grad, loss


results, errors = {}, []


def train(seed):
    try:
        width = 16 * (seed + 1)
        w = jax.random.normal(jax.random.key(seed), (width, width))
        losses = []
        for i in range(60):
            x = np.random.default_rng(i).normal(size=(32, width)).astype(np.float32)
            w, loss = step(w, x)
            if i % 7 == 0:
                losses.append(float(loss))
        results[seed] = (np.asarray(w), np.asarray(losses))
    except BaseException as error:
        errors.append(error)


threads = [threading.Thread(target=train, args=(seed,)) for seed in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not errors, errors
for seed in range(3):
    report(f"thread {seed}", results[seed])
