"""Optax as its notebooks use it: a schedule, a chain of transformations, L-BFGS with a line search,
and `jax.debug.print` from inside of jitted loops."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

rng = np.random.default_rng(0)
angles = rng.uniform(0, np.pi, 200)
side = np.arange(200) % 2
x = np.stack([np.cos(angles) * (1 - 2 * side) + side, np.sin(angles) * (1 - 2 * side)], -1)
x = jnp.asarray(x + 0.1 * rng.normal(size=x.shape), jnp.float32)
y = jnp.asarray(side)


def init(key, sizes=(2, 16, 16, 2)):
    keys = jax.random.split(key, len(sizes))
    return [
        {"w": jax.random.normal(k, (i, o)) * (2 / i) ** 0.5, "b": jnp.zeros(o)}
        for k, i, o in zip(keys, sizes, sizes[1:])
    ]


def logits(params, x):
    *hidden, last = params
    for layer in hidden:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ last["w"] + last["b"]


def loss(params):
    return optax.softmax_cross_entropy_with_integer_labels(logits(params, x), y).mean()


# ---------------------------------------------------------------- first order

schedule = optax.warmup_cosine_decay_schedule(0.0, 3e-2, 10, 60)
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-4))


@jax.jit
def step(params, state, index):
    value, grads = jax.value_and_grad(loss)(params)

    def say():
        jax.debug.print(
            "step {i} loss {v:.2f} norm {n:.2f}", i=index, v=value, n=optax.tree.norm(grads)
        )

    jax.lax.cond(index % 10 == 0, say, lambda: None)
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state


params = init(jax.random.key(0))
state = optimizer.init(params)
for index in range(60):
    params, state = step(params, state, index)
jax.effects_barrier()
accuracy = (logits(params, x).argmax(-1) == y).mean()
print(f"accuracy {accuracy:.2f}", flush=True)

# ---------------------------------------------------------------- L-BFGS


def print_info():
    """A transformation that changes nothing and tells how it goes."""

    def update(updates, state, params, *, value, grad, **_):
        jax.debug.print("iteration {i} value {v:.3f}", i=state, v=value)
        return updates, state + 1

    return optax.GradientTransformationExtraArgs(lambda params: 0, update)


def bowl(p):
    return jnp.sum((p - jnp.arange(4.0)) ** 2 * jnp.array([1.0, 2.0, 3.0, 4.0])) + 1.0


solver = optax.chain(print_info(), optax.lbfgs())


@jax.jit
def minimize(start):
    value_and_grad = optax.value_and_grad_from_state(bowl)

    def body(carry):
        params, state, _ = carry
        value, grad = value_and_grad(params, state=state)
        updates, state = solver.update(grad, state, params, value=value, grad=grad, value_fn=bowl)
        return optax.apply_updates(params, updates), state, optax.tree.norm(grad)

    start = (start, solver.init(start), jnp.float32(jnp.inf))
    return jax.lax.while_loop(lambda carry: carry[2] > 1e-2, body, start)[0]


found = minimize(jnp.zeros(4))
jax.effects_barrier()
print("minimum", " ".join(f"{v:.2f}" for v in found))
