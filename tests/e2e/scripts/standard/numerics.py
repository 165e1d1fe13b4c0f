"""Sparse matrices, ODEs, Fourier transforms, special functions, statistics, optimization."""

import jax
import jax.numpy as jnp
import jax.scipy as jsp
import jax.scipy.optimize
import numpy as np
from jax.experimental import sparse
from jax.experimental.ode import odeint

from show import show, show_all

rng = np.random.default_rng(0)


# ---------------------------------------------------------------- sparse

dense = jnp.asarray(np.where(rng.random((5, 4)) < 0.4, rng.normal(size=(5, 4)), 0), jnp.float32)
bcoo, bcsr = sparse.BCOO.fromdense(dense), sparse.BCSR.fromdense(dense)


def sparse_products(bcoo, bcsr, vector):
    def from_data(data):
        return (sparse.BCOO((data, bcoo.indices), shape=bcoo.shape) @ vector).sum()

    return {
        "bcoo_product": bcoo @ vector,
        "bcsr_product": bcsr @ vector,
        "bcoo_transposed": bcoo.T @ jnp.arange(5.0),
        "bcoo_sum": sparse.sparsify(lambda m: (m * 2).sum(0))(bcoo).todense(),
        "bcoo_grad": jax.grad(from_data)(bcoo.data),
        "bcsr_dense": bcsr.todense(),
    }


show_all(sparse_products, bcoo, bcsr, jnp.arange(4.0))
laplace = 2 * np.eye(6) - np.eye(6, k=1) - np.eye(6, k=-1)
for name in ("cg", "gmres", "bicgstab"):
    solver = getattr(jsp.sparse.linalg, name)
    show(name, jax.jit(lambda a, b, solver=solver: solver(a, b)[0])(laplace, np.ones(6)))

# ---------------------------------------------------------------- ode


def pendulum(state, t, damping):
    angle, speed = state
    return speed, -damping * speed - jnp.sin(angle)


def end_of(damping):
    path = odeint(pendulum, (1.0, 0.0), jnp.linspace(0.0, 2.0, 5), damping)
    return path[0][-1], path


(_, path), slope = jax.jit(jax.value_and_grad(end_of, has_aux=True))(0.2)
show("ode", path)
show("ode_grad", slope)

# ---------------------------------------------------------------- Fourier transforms

signal = jnp.asarray(rng.normal(size=(4, 6)), jnp.float32)


def transforms(signal):
    names = ("fft", "ifft", "rfft", "ihfft", "fft2", "rfft2", "fftn")
    found = {name: getattr(jnp.fft, name)(signal) for name in names}
    return found | {
        "irfft": jnp.fft.irfft(jnp.fft.rfft(signal)),
        "fft_grad": jax.grad(lambda s: (jnp.abs(jnp.fft.rfft(s)) ** 2).sum())(signal[0]),
        "dct": jsp.fft.dct(signal[0]),
        "stft": jsp.signal.stft(signal[0], nperseg=4)[2],
    }


show_all(transforms, signal)

# ---------------------------------------------------------------- special functions and others

positive = jnp.linspace(0.5, 4.0, 4)


def special(x):
    names = ("digamma", "erf", "expi", "gammaln", "i0e", "i1", "expit")
    found = {name: getattr(jsp.special, name)(x) for name in names}
    return found | {
        "betainc": jsp.special.betainc(2.0, 3.0, x / 8),
        "erfinv": jsp.special.erfinv(x / 8),
        "gammainc": jsp.special.gammainc(2.0, x),
        "logsumexp": jsp.special.logsumexp(x),
        "ndtri": jsp.special.ndtri(x / 8),
        "norm_logpdf": jsp.stats.norm.logpdf(x),
        "xlogy": jsp.special.xlogy(x, x),
    }


show_all(special, positive)


def others(x, signal):
    def bowl(p):
        return ((p - jnp.array([1.0, 2.0])) ** 2).sum()

    return {
        "bfgs": jsp.optimize.minimize(bowl, jnp.zeros(2), method="BFGS").x,
        "histogram": jnp.histogram(signal, bins=4),
        "interp": jnp.interp(x, jnp.arange(5.0), jnp.arange(5.0) ** 2),
        "kde": jsp.stats.gaussian_kde(signal[0])(x),
        "polyfit": jnp.polyfit(x, x**2 + 1, 1),
        "sort": jnp.sort(signal, axis=0),
        "roots": jnp.sort(jnp.roots(jnp.array([1.0, -6.0, 11.0, -6.0]), strip_zeros=False).real),
    }


show_all(others, positive, signal)
show("unique", jnp.unique(jnp.array([3, 1, 3, 2]), return_counts=True))
