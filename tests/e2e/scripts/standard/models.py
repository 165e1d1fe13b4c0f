"""Random numbers, images, and what neural networks are made of."""

import jax
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np
from jax import random

from show import show, show_all

rng = np.random.default_rng(0)

# ---------------------------------------------------------------- random

for impl in ("threefry2x32", "rbg"):
    key = random.key(3, impl=impl)
    show(f"split_{impl}", random.split(key, 2))
    show(f"bits_{impl}", random.bits(key, (4,)))
    show(f"normal_{impl}", random.normal(key, (4,)))


def samples(key):
    covariance = jnp.array([[2.0, 0.5], [0.5, 1.0]])
    return {
        "bernoulli": random.bernoulli(key, 0.3, (6,)),
        "beta": random.beta(key, 2.0, 3.0, (3,)),
        "categorical": random.categorical(key, jnp.arange(4.0), shape=(5,)),
        "choice": random.choice(key, 10, (4,), replace=False),
        "dirichlet": random.dirichlet(key, jnp.ones(3)),
        "exponential": random.exponential(key, (3,)),
        "gamma": random.gamma(key, 2.0, (3,)),
        "gumbel": random.gumbel(key, (3,)),
        "laplace": random.laplace(key, (3,)),
        "multivariate_normal": random.multivariate_normal(key, jnp.zeros(2), covariance, (2,)),
        "orthogonal": random.orthogonal(key, 3),
        "permutation": random.permutation(key, 6),
        "poisson": random.poisson(key, 3.0, (5,)),
        "randint": random.randint(key, (5,), -9, 9),
        "truncated_normal": random.truncated_normal(key, -1.0, 1.0, (3,)),
        "uniform": random.uniform(key, (3,)),
        "vmap": jax.vmap(lambda k: random.normal(k, (2,)))(random.split(key, 3)),
    }


show_all(samples, random.key(1))

# ---------------------------------------------------------------- images

picture = jnp.asarray(rng.random((6, 6)), jnp.float32)


def pictures(picture):
    methods = ("nearest", "linear", "cubic", "lanczos3")
    found = {m: jax.image.resize(picture, (4, 9), m) for m in methods}
    at = [jnp.array([0.5, 2.2])] * 2
    return found | {
        "map_coordinates": jsp.ndimage.map_coordinates(picture, at, order=1),
        "convolve2d": jsp.signal.convolve2d(picture, jnp.ones((2, 2)), mode="same"),
    }


show_all(pictures, picture)

# ---------------------------------------------------------------- layers

NAMES = """celu elu gelu hard_swish leaky_relu log_sigmoid log_softmax mish relu relu6 selu sigmoid
silu softmax softplus squareplus standardize swish""".split()


def activations(x):
    found = {name: getattr(jax.nn, name)(x) for name in NAMES}
    slopes = {
        f"{name}_grad": jax.grad(lambda x, n=name: getattr(jax.nn, n)(x)[1])(x) for name in NAMES
    }
    return found | slopes | {"one_hot": jax.nn.one_hot(jnp.arange(3), 4)}


show_all(activations, jnp.linspace(-2.0, 2.0, 5))


def layers(picture, kernel, q, k, v):
    def convolution(kernel):
        numbers = ("NHWC", "HWIO", "NHWC")
        given = picture[None, ..., None]
        return jax.lax.conv_general_dilated(
            given, kernel, (2, 2), "SAME", dimension_numbers=numbers
        )

    pooled = jax.lax.reduce_window(picture, -jnp.inf, jax.lax.max, (2, 2), (2, 2), "VALID")
    return {
        "attention": jax.nn.dot_product_attention(q, k, v, is_causal=True),
        "convolution": convolution(kernel),
        "convolution_grad": jax.grad(lambda k: (convolution(k) ** 2).sum())(kernel),
        "pooled": pooled,
    }


kernel = jnp.asarray(rng.normal(size=(3, 3, 1, 2)), jnp.float32)
heads = [jnp.asarray(rng.normal(size=(1, 3, 2, 4)), jnp.float32) for _ in range(3)]
show_all(layers, picture, kernel, *heads)


def initial(key):
    names = ("glorot_normal", "he_uniform", "lecun_normal", "orthogonal")
    return {name: getattr(jax.nn.initializers, name)()(key, (3, 2)) for name in names}


show_all(initial, random.key(5))
