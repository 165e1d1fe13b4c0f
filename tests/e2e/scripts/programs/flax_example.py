"""Flax NNX: a small CNN with batch norm and dropout, metrics, evaluation, a checkpoint."""

import os
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx

rng = np.random.default_rng(0)
labels = rng.integers(0, 3, 192)
images = rng.normal(size=(192, 8, 8, 1)) * 0.3
images[np.arange(192), :, labels * 3, 0] += 1.0  # a bar where the label says
images, labels = jnp.asarray(images, jnp.float32), jnp.asarray(labels)


class CNN(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(1, 8, kernel_size=(3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.hidden = nnx.Linear(128, 16, rngs=rngs)
        self.out = nnx.Linear(16, 3, rngs=rngs)

    def __call__(self, x):
        x = nnx.avg_pool(nnx.relu(self.norm(self.conv(x))), (2, 2), (2, 2))
        x = nnx.relu(self.hidden(x.reshape(x.shape[0], -1)))
        return self.out(self.dropout(x))


model = CNN(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adamw(5e-3), wrt=nnx.Param)
metrics = nnx.MultiMetric(accuracy=nnx.metrics.Accuracy(), loss=nnx.metrics.Average("loss"))


def loss_of(model, images, labels):
    logits = model(images)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), logits


@nnx.jit
def train_step(model, optimizer, metrics, images, labels):
    (loss, logits), grads = nnx.value_and_grad(loss_of, has_aux=True)(model, images, labels)
    metrics.update(loss=loss, logits=logits, labels=labels)
    optimizer.update(model, grads)
    jax.debug.callback(lambda loss: losses.append(float(loss)), loss)


@nnx.jit
def eval_step(model, metrics, images, labels):
    loss, logits = loss_of(model, images, labels)
    metrics.update(loss=loss, logits=logits, labels=labels)


losses = []
for epoch in range(4):
    model.train()
    for begin in range(0, 192, 32):
        batch = slice(begin, begin + 32)
        train_step(model, optimizer, metrics, images[batch], labels[batch])
    model.eval()
    metrics.reset()
    eval_step(model, metrics, images, labels)
    found = metrics.compute()
    print(f"epoch {epoch} loss {found['loss']:.2f} accuracy {found['accuracy']:.2f}", flush=True)
    metrics.reset()
jax.effects_barrier()
print("callbacks", len(losses), "first", f"{losses[0]:.2f}", "last lower", losses[-1] < losses[0])

path = os.path.join(tempfile.mkdtemp(), "state")
state = nnx.state(model, nnx.Param)
with ocp.StandardCheckpointer() as checkpointer:
    checkpointer.save(path, state)
    checkpointer.wait_until_finished()
    restored = checkpointer.restore(path, state)
same = jax.tree.map(lambda a, b: bool((a == b).all()), state, restored)
print("restored", all(jax.tree.leaves(same)))
