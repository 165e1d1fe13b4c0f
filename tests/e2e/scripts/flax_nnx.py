"""Flax nnx: a module with mutable state, an optimizer, split and merge, an evaluation mode."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from report import report


class Net(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(50, 32, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(4, 32, decode=False, rngs=rngs)
        self.norm = nnx.LayerNorm(32, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.head = nnx.Linear(32, 50, rngs=rngs)

    def __call__(self, tokens):
        x = self.embed(tokens)
        x = self.norm(x + self.dropout(self.attention(x)))
        return self.head(x)


@nnx.jit
def step(model, optimizer, tokens):
    def loss(model):
        logits = model(tokens)
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens).mean()

    value, grads = nnx.value_and_grad(loss)(model)
    optimizer.update(model, grads)
    return value


model = Net(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
tokens = jax.random.randint(jax.random.key(3), (8, 16), 0, 50)
for _ in range(30):
    value = step(model, optimizer, tokens)
report("loss", value)
assert float(value) < 2.0

graph, state = nnx.split(model)
report("state", jax.tree_util.tree_map(jnp.asarray, nnx.state(model, nnx.Param)))
again = nnx.merge(graph, state)
again.eval()
report("evaluation", nnx.jit(lambda m, t: m(t))(again, tokens))
