"""The first use of the device. Prints RAN if it got one, whichever."""

import jax
import jax.numpy as jnp

print("RAN on", jax.devices()[0].platform, float(jnp.arange(4.0).sum()))
