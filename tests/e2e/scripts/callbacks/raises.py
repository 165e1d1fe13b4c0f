"""A callback that raises: the error names the exception and shows the function's own lines."""

import jax
import jax.numpy as jnp


def a_function_of_the_user(x):
    raise ValueError(f"the loss is {float(x[0])}")


@jax.jit
def step(x):
    return jax.pure_callback(a_function_of_the_user, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


try:
    jax.block_until_ready(step(jnp.ones(3)))
except jax.errors.JaxRuntimeError as error:
    text = str(error)
    print("CpuCallback error calling callback" in text, "in a_function_of_the_user" in text)
    print(text.strip().splitlines()[-1])
print(float(jnp.ones(3).sum()))
