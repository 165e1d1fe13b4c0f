"""A training state is saved with Orbax, restored, and training goes on as if nothing had been."""

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp

from report import report

optimizer = optax.adam(1e-2)


@jax.jit
def step(state, x):
    def loss(w):
        return ((x @ w) ** 2).mean()

    grads = jax.grad(loss)(state["w"])
    updates, opt = optimizer.update(grads, state["opt"])
    return {"w": optax.apply_updates(state["w"], updates), "opt": opt}


x = jax.random.normal(jax.random.key(0), (64, 32))
w = jax.random.normal(jax.random.key(1), (32, 8))
state = {"w": w, "opt": optimizer.init(w)}
for _ in range(10):
    state = step(state, x)
report("before", state)

directory = Path(tempfile.mkdtemp()) / "checkpoint"
with ocp.StandardCheckpointer() as checkpointer:
    checkpointer.save(directory, state)
    checkpointer.wait_until_finished()
    like = jax.tree_util.tree_map(ocp.utils.to_shape_dtype_struct, state)
    restored = checkpointer.restore(directory, like)
report("restored", restored)
for leaf in jax.tree_util.tree_leaves(restored):
    assert leaf.devices() == w.devices(), leaf.devices()

for _ in range(10):
    state, restored = step(state, x), step(restored, x)
report("after", restored)
assert (state["w"] == restored["w"]).all()
assert jnp.isfinite(restored["w"]).all()
