"""Writes programs as JAX lowers them for CUDA, and the options that JAX would send.

JAX lowers for a platform that is not there; no plugin is loaded. For each program: NAME.mlirbc, the
portable StableHLO that a job's library gets; NAME.options, JAX's own compile options. Linear
algebra is there twice: as jobs lower it without the vendor's handlers, and with them, as
`vendor_NAME`.
"""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src import compiler
from jax._src.interpreters import mlir
from jax._src.lib import xla_client

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python" / "salus"))
import jax_plugin as salus

# What the plugin of this JAX says that it reads (`stablehlo_current_version`).
STABLEHLO = "1.17.0"


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def mlp():
    """A training step whose weights are donated."""

    def loss(weights, x, y):
        for w in weights[:-1]:
            x = jnp.tanh(x @ w)
        return jnp.mean((x @ weights[-1] - y) ** 2)

    def step(weights, x, y):
        value, grads = jax.value_and_grad(loss)(weights, x, y)
        return [w - 0.1 * g for w, g in zip(weights, grads, strict=True)], value

    weights = [f32(128, 256), f32(256, 256), f32(256, 8)]
    return jax.jit(step, donate_argnums=0), (weights, f32(64, 128), f32(64, 8))


def convolution():
    def convolve(x, w):
        y = lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return jax.nn.relu(y).sum(axis=(1, 2))

    return jax.jit(convolve), (f32(8, 32, 32, 16), f32(3, 3, 16, 32))


def attention():
    def attend(q, k, v):
        return jax.nn.dot_product_attention(q, k, v, is_causal=True)

    shape = jax.ShapeDtypeStruct((2, 128, 4, 64), jnp.bfloat16)
    return jax.jit(attend), (shape, shape, shape)


def sort():
    """Large enough for XLA to want CUB, on any GPU."""
    return jax.jit(jnp.sort), (jax.ShapeDtypeStruct((1 << 24,), jnp.int32),)


def random():
    return jax.jit(lambda key: jax.random.normal(key, (1024,))), (
        jax.ShapeDtypeStruct((2,), jnp.uint32),
    )


def fft():
    return jax.jit(lambda x: jnp.abs(jnp.fft.fft(x))), (f32(32, 256),)


def offload():
    """A result in the host's memory."""
    from jax.sharding import SingleDeviceSharding

    host = SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host")
    return jax.jit(lambda x: x * 2, out_shardings=host), (f32(256, 256),)


def pallas():
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton as plgpu

    def kernel(x, y, out):
        out[...] = x[...] + y[...]

    def add(x, y):
        return pl.pallas_call(
            kernel,
            out_shape=f32(1024),
            grid=(4,),
            in_specs=[pl.BlockSpec((256,), lambda i: (i,))] * 2,
            out_specs=pl.BlockSpec((256,), lambda i: (i,)),
            compiler_params=plgpu.CompilerParams(num_warps=4),
        )(x, y)

    return jax.jit(add), (f32(1024), f32(1024))


def linalg(function, *shapes):
    return jax.jit(function), shapes


PROGRAMS = {
    "mlp": mlp,
    "convolution": convolution,
    "attention": attention,
    "sort": sort,
    "random": random,
    "fft": fft,
    "offload": offload,
    "pallas": pallas,
}
LINALG = {
    "cholesky": lambda: linalg(jnp.linalg.cholesky, f32(16, 16)),
    "solve": lambda: linalg(jnp.linalg.solve, f32(16, 16), f32(16, 2)),
    "qr": lambda: linalg(jnp.linalg.qr, f32(16, 16)),
    "svd": lambda: linalg(jnp.linalg.svd, f32(16, 16)),
    "eigh": lambda: linalg(jnp.linalg.eigh, f32(16, 16)),
}


def lower_plainly():
    """From here on linear algebra is lowered as in jobs of a service without handlers for it."""
    salus._lower_linalg_plainly(
        SimpleNamespace(
            platform="cuda", local_devices=lambda: [SimpleNamespace(salus_linalg="plain")]
        )
    )


def write(directory, name, make):
    function, shapes = make()
    lowered = function.trace(*shapes).lower(lowering_platforms=("cuda",))
    code = mlir.module_to_bytecode(lowered.compiler_ir())
    code = xla_client._xla.mlir.serialize_portable_artifact(code, STABLEHLO, False)
    options = compiler.get_compile_options(
        num_replicas=1, num_partitions=1, device_assignment=np.array([[0]])
    )
    (directory / f"{name}.mlirbc").write_bytes(code)
    (directory / f"{name}.options").write_bytes(options.SerializeAsString())


def main():
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, make in PROGRAMS.items():
        write(directory, name, make)
    for name, make in LINALG.items():
        write(directory, f"vendor_{name}", make)
    lower_plainly()
    # JAX keeps what it has lowered; a job has lowered nothing when it first learns of its device.
    jax.clear_caches()
    for name, make in LINALG.items():
        write(directory, name, make)


main()
