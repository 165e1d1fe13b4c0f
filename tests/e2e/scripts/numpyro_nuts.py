"""NumPyro: a regression sampled with NUTS."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

from report import report_about


def model(x, y):
    slope = numpyro.sample("slope", dist.Normal(0, 1).expand([3]).to_event(1))
    noise = numpyro.sample("noise", dist.HalfNormal(1))
    numpyro.sample("y", dist.Normal(x @ slope, noise), obs=y)


x = jax.random.normal(jax.random.key(0), (100, 3))
truth = jnp.array([1.0, -2.0, 0.5])
y = x @ truth + 0.1 * jax.random.normal(jax.random.key(1), (100,))
sampler = MCMC(NUTS(model), num_warmup=200, num_samples=200, progress_bar=False)
sampler.run(jax.random.key(2), x, y)
samples = sampler.get_samples()
# Two chains that begin with the same bits but one soon have nothing in common but the posterior.
report_about("mean", samples["slope"].mean(0), 0.02)
report_about("noise", samples["noise"].mean(), 0.02)
assert jnp.abs(samples["slope"].mean(0) - truth).max() < 0.1, samples["slope"].mean(0)
