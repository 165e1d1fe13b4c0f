"""What `salus doctor --try` runs on a device: an ordinary JAX job that checks its own results.

    alone                one job: transfers, a program, linear algebra, a callback, errors, memory
    beside BYTES SEED    one of two jobs that hold BYTES each on a device that cannot hold both; it
                         prints `ready` when it holds them and goes on at a line of input

Prints one JSON object per check: what it is, whether it worked, what was found.
"""

import json
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

MIB = 1 << 20


def say(check, ok, found):
    """`ok` is None where it is known not to be there yet."""
    ok = None if ok is None else bool(ok)
    print(json.dumps({"check": check, "ok": ok, "found": found}), flush=True)


def attempt(check, body):
    """A check that fails says why, and the next one goes on."""
    try:
        body()
    except Exception as error:
        lines = f"{type(error).__name__}: {error}".splitlines()
        say(check, False, "\n".join(lines[:6]))


def device():
    found = jax.devices()[0]
    stats = found.memory_stats() or {}
    limit = stats.get("bytes_limit")
    shown = f", {limit / MIB:,.0f} MiB for this job" if limit else ""
    say("device seen by JAX", True, f"{found.platform}, {found.device_kind}{shown}")


def transfers():
    host = np.random.default_rng(0).standard_normal(64 * MIB // 4, dtype=np.float32)
    up, down = [], []
    for _ in range(6):
        began = time.perf_counter()
        array = jax.block_until_ready(jax.device_put(host))
        up.append(time.perf_counter() - began)
        # A new array each time: JAX keeps the host's copy of one that was read.
        array = jax.block_until_ready(array + 0)
        began = time.perf_counter()
        back = np.asarray(array)
        down.append(time.perf_counter() - began)
    # The first one pays for pages and pinning.
    rates = [host.nbytes / statistics.median(times[1:]) / 1e9 for times in (up, down)]
    found = f"64 MiB to the device {rates[0]:.1f} GB/s, back {rates[1]:.1f} GB/s"
    say("transfers", np.array_equal(back, host), found)


def program():
    def loss(weights, x, y):
        hidden = jnp.tanh(x @ weights[0])
        return jnp.mean((hidden @ weights[1] - y) ** 2)

    @jax.jit
    def step(weights, x, y):
        value, slopes = jax.value_and_grad(loss)(weights, x, y)
        return value, [w - 0.1 * slope for w, slope in zip(weights, slopes, strict=True)]

    random = np.random.default_rng(1)
    weights = [random.normal(size=s).astype(np.float32) * 0.1 for s in ((256, 512), (512, 16))]
    x = random.normal(size=(128, 256)).astype(np.float32)
    y = random.normal(size=(128, 16)).astype(np.float32)
    began = time.perf_counter()
    first, state = step(weights, x, y)
    first = float(first)
    compiled = time.perf_counter() - began
    began = time.perf_counter()
    for _ in range(50):
        last, state = step(state, x, y)
    last = float(last)
    each = (time.perf_counter() - began) / 50
    expected = float(np.mean((np.tanh(x @ weights[0]) @ weights[1] - y) ** 2))
    ok = abs(first - expected) <= 1e-2 * expected and last < first
    found = f"loss {first:.5f} (NumPy {expected:.5f}) to {last:.5f}; "
    found += f"first step {compiled:.1f} s, then {each * 1e3:.2f} ms each"
    say("program", ok, found)


def linalg():
    random = np.random.default_rng(2)
    a = random.normal(size=(32, 32)).astype(np.float32)
    positive = a @ a.T + 32 * np.eye(32, dtype=np.float32)
    pairs = {
        "cholesky": (jnp.linalg.cholesky(positive), np.linalg.cholesky(positive)),
        "solve": (jnp.linalg.solve(positive, a), np.linalg.solve(positive, a)),
        "svd": (jnp.linalg.svd(a, compute_uv=False), np.linalg.svd(a, compute_uv=False)),
        "eigh": (jnp.linalg.eigvalsh(positive), np.linalg.eigvalsh(positive)),
    }
    errors = {
        name: float(np.max(np.abs(np.asarray(ours) - theirs)) / np.max(np.abs(theirs)))
        for name, (ours, theirs) in pairs.items()
    }
    found = ", ".join(f"{name} {error:.0e}" for name, error in errors.items())
    say("linear algebra", max(errors.values()) < 1e-3, f"relative error against NumPy: {found}")


def callback():
    shape = jax.ShapeDtypeStruct((4,), np.float32)
    twice = jax.jit(lambda x: jax.pure_callback(lambda v: np.asarray(v) * 2, shape, x) + 1)
    try:
        value = np.asarray(twice(np.arange(4, dtype=np.float32)))
    except Exception as error:
        if jax.devices()[0].platform == "cpu" or "Python callback" not in str(error):
            raise
        return say("callback", None, "Python callbacks work on the CPU device only so far")
    ok = np.array_equal(value, [1, 3, 5, 7])
    return say("callback", ok, "jax.pure_callback returned its values")


def error():
    """A program that cannot be compiled is this job's error alone, and the job goes on."""
    missing = jax.ffi.ffi_call("salus_self_test_no_such_target", jax.ShapeDtypeStruct((), "f4"))
    try:
        jax.block_until_ready(jax.jit(missing)())
    except Exception as refused:
        first = str(refused).splitlines()[0][:120]
        after = float(jax.jit(lambda x: x + 1)(1.0))
        return say("an error", after == 2.0, f"refused, and the job went on: {first}")
    return say("an error", False, "a program that calls a function which does not exist ran")


def out_of_memory():
    limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit")
    if not limit:
        return say("out of memory", False, "the device does not say how much memory it has")
    try:
        jax.block_until_ready(jnp.zeros(2 * limit // 4, jnp.float32))
    except Exception as refused:
        first = str(refused).splitlines()[0][:160]
        after = float(jnp.ones(1000).sum())
        return say("out of memory", after == 1000.0, f"refused, and the job went on: {first}")
    return say("out of memory", False, "an array of twice the device's memory was accepted")


def alone():
    checks = {
        "device seen by JAX": device,
        "transfers": transfers,
        "program": program,
        "linear algebra": linalg,
        "callback": callback,
        "an error": error,
        "out of memory": out_of_memory,
    }
    for check, body in checks.items():
        attempt(check, body)


def beside(total, seed):
    """Adds to arrays that fill most of the device, beside another job that does the same."""
    parts, length = 8, total // 8 // 4
    bump = jax.jit(lambda x: x * 1.5 + 1.0, donate_argnums=0)
    arrays = [jnp.full(length, float(seed + n), jnp.float32) for n in range(parts)]
    expected = [np.float32(seed + n) for n in range(parts)]
    jax.block_until_ready(arrays)
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(20):
        arrays = [bump(array) for array in arrays]
        expected = [np.float32(value * np.float32(1.5) + np.float32(1.0)) for value in expected]
        jax.block_until_ready(arrays)
    spread = [(float(array.min()), float(array.max())) for array in arrays]
    near = all(
        low == high and abs(low - value) <= 1e-5 * abs(value)
        for (low, high), value in zip(spread, expected, strict=True)
    )
    say(f"job {seed}", near, f"{total / MIB:,.0f} MiB, 20 rounds, every element as expected")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["alone"]:
            alone()
        case ["beside", total, seed]:
            attempt(f"job {seed}", lambda: beside(int(total), int(seed)))
        case _:
            sys.exit("this script belongs to `salus doctor --try`")
