"""A neural ODE with diffrax and equinox, all defaults: they check for errors while they run."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax


class Field(eqx.Module):
    mlp: eqx.nn.MLP

    def __call__(self, t, y, args):
        return self.mlp(y)


class NeuralODE(eqx.Module):
    field: Field

    def __init__(self, key):
        self.field = Field(eqx.nn.MLP(2, 2, 16, 2, activation=jax.nn.softplus, key=key))

    def __call__(self, times, start):
        return diffrax.diffeqsolve(
            diffrax.ODETerm(self.field),
            diffrax.Tsit5(),
            t0=times[0],
            t1=times[-1],
            dt0=times[1] - times[0],
            y0=start,
            stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-6),
            saveat=diffrax.SaveAt(ts=times),
        ).ys


def spiral(t, y, args):
    x = y / (1 + y)
    return jnp.stack([x[1], -x[0]], axis=-1)


times = jnp.linspace(0, 5, 20)
starts = jr.uniform(jr.key(0), (16, 2), minval=-0.6, maxval=1)


@jax.jit
@jax.vmap
def truth(start):
    return diffrax.diffeqsolve(
        diffrax.ODETerm(spiral),
        diffrax.Dopri5(),
        0.0,
        5.0,
        0.1,
        start,
        saveat=diffrax.SaveAt(ts=times),
    ).ys


data = truth(starts)
print("data", " ".join(f"{v:.3f}" for v in data[:3, -1].ravel()), flush=True)

model = NeuralODE(jr.key(1))
optimizer = optax.adabelief(1e-2)
state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))


@eqx.filter_jit
def step(model, state):
    @eqx.filter_value_and_grad
    def loss(model):
        return ((jax.vmap(model, in_axes=(None, 0))(times, data[:, 0]) - data) ** 2).mean()

    value, grads = loss(model)
    updates, state = optimizer.update(grads, state)
    return value, eqx.apply_updates(model, updates), state


for index in range(15):
    value, model, state = step(model, state)
    if index % 5 == 0:
        print(f"step {index} loss {value:.3f}", flush=True)

# What goes wrong is said, from inside of a compiled loop.
try:
    solution = eqx.filter_jit(diffrax.diffeqsolve)(
        diffrax.ODETerm(spiral), diffrax.Dopri5(), 0.0, 100.0, 0.01, starts[0], max_steps=16
    )
    jax.block_until_ready(solution.ys)
except Exception as error:
    text = str(error)
    print("raised", "maximum number of solver steps was reached" in text)
solution = diffrax.diffeqsolve(
    diffrax.ODETerm(spiral),
    diffrax.Dopri5(),
    0.0,
    100.0,
    0.01,
    starts[0],
    max_steps=16,
    throw=False,
)
print("successful", bool(solution.result == diffrax.RESULTS.successful))
