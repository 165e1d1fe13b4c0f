"""NumPyro: NUTS with its progress bars, around the steps and inside of the program."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import summary
from numpyro.infer import MCMC, NUTS, Predictive
from numpyro.util import fori_collect

schools = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
errors = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def model(errors, y=None):
    mean = numpyro.sample("mean", dist.Normal(0, 5))
    spread = numpyro.sample("spread", dist.HalfCauchy(5))
    with numpyro.plate("schools", len(errors)):
        unit = numpyro.sample("unit", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(mean + spread * unit, errors), obs=y)


kernel = NUTS(model, target_accept_prob=0.9)
sampler = MCMC(kernel, num_warmup=300, num_samples=500, num_chains=2, progress_bar=True)
sampler.run(jax.random.key(0), errors, y=schools)
found = summary(sampler.get_samples(group_by_chain=True))
# Chains part after some hundred steps if one bit differs: what they say of the model does not.
print("chains agree", bool(found["mean"]["r_hat"] < 1.1), flush=True)
print("mean as expected", bool(2.5 < found["mean"]["mean"] < 6.5), flush=True)
predicted = Predictive(model, sampler.get_samples())(jax.random.key(1), errors)["y"]
print("predicted", predicted.shape, bool(jnp.isfinite(predicted).all()), flush=True)

# As for several chains on several devices: all steps are one program, which calls for each tenth.
state = kernel.init(jax.random.key(3), 100, None, model_args=(errors,), model_kwargs={"y": schools})
samples = fori_collect(
    0,
    200,
    lambda state: kernel.sample(state, (errors,), {"y": schools}),
    state,
    transform=lambda state: state.z["mean"],
    progbar=True,
    num_chains=2,
    progress_rate=10,
)
print("collected", samples.shape, bool(jnp.isfinite(samples).all()))
