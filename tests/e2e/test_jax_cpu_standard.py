"""The standard is JAX's own CPU backend: the same scripts there and through Salus, the same output.

Words must be equal; numbers may differ in their last digits, because the device's plugin is another
version of XLA than the one inside JAX. `tests/jax_suite` does this with JAX's own tests.
"""

import concurrent.futures
import math

import pytest

from harness import SCRIPTS, python, run

# `standard/`: what JAX offers, by area. `programs/`: what people write with other libraries on it.
NAMES = sorted(
    f"{path.parent.name}/{path.stem}"
    for directory in ("standard", "programs")
    for path in (SCRIPTS / directory).glob("*.py")
    if path.stem != "show"
)

# Of the largest number of an array: float32 has seven digits, and derivatives lose some of them.
ARRAY_TOLERANCE = 1e-3

# A loss after some dozens of steps, printed with two or three decimals.
LOSS_TOLERANCE = 2e-2

# Progress bars are written to stderr.
BARS = {"programs/numpyro_progress": ["| 800/800 [", "| 200/200 ["]}


@pytest.mark.parametrize("name", NAMES)
def test_same_output(sandbox, shared_daemon, name):
    environments = [sandbox.environment(JAX_PLATFORMS="cpu"), sandbox.salus(shared_daemon.socket)]
    command = python(SCRIPTS / f"{name}.py")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        jobs = [pool.submit(run, sandbox, command, env) for env in environments]
    expected, got = (job.result() for job in jobs)
    arrays = name.startswith("standard/")
    assert expected.ok().stdout, "the script printed nothing"
    difference = first_difference(expected.stdout, got.stdout, arrays)
    assert not difference, f"{difference}\n{got.text()}"
    got.ok()
    for bar in BARS.get(name, ()):
        assert bar in expected.stderr and bar in got.stderr, got.text()


def first_difference(expected: str, got: str, arrays: bool) -> str:
    first, second = expected.splitlines(), got.splitlines()
    for a, b in zip(first, second):
        if not is_same(a, b, arrays):
            return f"on JAX's CPU backend: {a}\nthrough Salus:        {b}"
    if len(first) != len(second):
        return f"{len(first)} lines on JAX's CPU backend, {len(second)} through Salus"
    return ""


def is_same(expected: str, got: str, arrays: bool) -> bool:
    """Word by word. With `arrays`, a line is an array, judged by its largest number."""
    words, others = expected.split(), got.split()
    if len(words) != len(others):
        return False
    numbers = [_number(word) for word in words]
    largest = max((abs(n) for n in numbers if n is not None and math.isfinite(n)), default=0.0)

    def close(word, number, other):
        value = _number(other)
        if word == other or number is None or value is None:
            return word == other
        if arrays:
            return abs(number - value) <= ARRAY_TOLERANCE * largest
        # A whole number counts something.
        return "." in word and abs(number - value) <= LOSS_TOLERANCE * max(1.0, abs(number))

    return all(map(close, words, numbers, others))


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def test_comparison_sees_what_differs():
    assert is_same("x float32 1 2.00001", "x float32 1 2.00002", arrays=True)
    assert is_same("x float32 1 nan", "x float32 1 nan", arrays=True)
    assert is_same("step 20 loss 0.51", "step 20 loss 0.52", arrays=False)
    for a, b in [
        ("x float32 1 2.0", "x float32 1 2.1"),
        ("x float32 1 2.0", "y float32 1 2.0"),
        ("x float32 1 nan", "x float32 1 2.0"),
        ("x float32 1 2.0", "x float32 1 nan"),
        ("x float32 2 1 2", "x float32 2 1"),
    ]:
        assert not is_same(a, b, arrays=True), (a, b)
    assert not is_same("step 20 loss 0.51", "step 21 loss 0.51", arrays=False)
    assert not is_same("step 20 loss 0.51", "step 20 loss 0.71", arrays=False)
