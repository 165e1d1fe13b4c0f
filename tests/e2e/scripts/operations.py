"""A broad sweep over operations: convolutions, sorts, transforms, gathers, random numbers."""

import jax
import jax.numpy as jnp
from jax import lax

from report import report

key = jax.random.key(42)
x = jax.random.normal(key, (4, 16, 16, 8))
kernel = jax.random.normal(jax.random.key(1), (3, 3, 8, 16))
flat = x.reshape(-1)
matrix = x.reshape(64, 128)


def pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def conv(x, k, **more):
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=numbers, **more)


programs = {
    "conv": lambda: conv(x, kernel),
    "dilated conv": lambda: conv(x, kernel, rhs_dilation=(2, 2)),
    "conv gradient": lambda: jax.grad(lambda k: (conv(x, k) ** 2).mean())(kernel),
    "max pool": lambda: pool(x),
    "sort": lambda: jnp.sort(flat),
    "argsort": lambda: jnp.argsort(matrix, axis=1),
    "top_k": lambda: lax.top_k(matrix, 5),
    "fft": lambda: jnp.fft.rfft2(matrix),
    "cumsum": lambda: jnp.cumsum(matrix, axis=0),
    "gather": lambda: matrix[jnp.arange(0, 64, 3)[:, None], jnp.arange(0, 128, 5)],
    "scatter": lambda: matrix.at[::2].add(1.0).at[3].set(0.0),
    "segment sum": lambda: jax.ops.segment_sum(flat, jnp.arange(flat.size) % 7, 7),
    "softmax": lambda: jax.nn.softmax(matrix),
    "logsumexp": lambda: jax.nn.logsumexp(matrix, axis=1),
    "einsum": lambda: jnp.einsum("bhwc,bhwd->cd", x, x),
    "attention": lambda: jax.nn.dot_product_attention(x, x, x),
    "unique": lambda: jnp.unique(jnp.arange(100) % 13),
    "nonzero": lambda: jnp.nonzero(flat > 2)[0],
    "bits": lambda: jax.random.bits(key, (1000,)),
    "gamma": lambda: jax.random.gamma(key, 2.0, (100,)),
    "categorical": lambda: jax.random.categorical(key, matrix),
    "permutation": lambda: jax.random.permutation(key, 1000),
    "rbg": lambda: jax.random.normal(jax.random.key(3, impl="rbg"), (100,)),
    "erf": lambda: lax.erf_inv(jnp.linspace(-0.9, 0.9, 99)),
    "integers": lambda: jnp.arange(1, 100) // 7 % 5 << 3 ^ 1,
    "hessian": lambda: jax.hessian(lambda v: (jnp.sin(v) ** 3).sum())(flat[:6]),
    "checkpoint": lambda: jax.grad(jax.checkpoint(lambda v: jnp.tanh(v @ v.T).sum()))(matrix),
}
for name, program in programs.items():
    dynamic = name in ("unique", "nonzero")  # their shapes depend on the data
    report(name, program() if dynamic else jax.jit(program)())
    if name in ("sort", "scatter", "softmax"):
        report(f"{name}, op by op", program())
