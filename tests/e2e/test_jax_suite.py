"""The script that compares JAX's own tests on both sides, on a checkout with a file of our own."""

import json
import sys

import pytest

from harness import ROOT, run

COMPARE = ROOT / "tests" / "jax_suite" / "compare.py"

TESTS = """
import os
import time

import jax
import numpy as np
import pytest

SALUS = os.environ["JAX_PLATFORMS"].startswith("salus")


def test_works():
    assert float(jax.numpy.arange(4.0).sum()) == 6
    assert len(jax.devices()) == 1


def test_fails_everywhere():
    raise ValueError("as ever")


def test_fails_here():
    assert not SALUS, "not through Salus"


def test_skipped_here():
    if SALUS:
        pytest.skip("no")


def test_ends_the_process():
    if SALUS:
        os.abort()


def test_never_ends():
    while SALUS:
        time.sleep(1)


def test_last():
    pass
"""


@pytest.fixture
def compare(sandbox):
    checkout = sandbox.directory / "checkout"
    (checkout / "tests").mkdir(parents=True)
    (checkout / "tests" / "tiny_test.py").write_text(TESTS)

    def call(*options):
        command = [sys.executable, COMPARE, "tiny_test", "--tests", checkout, "--every", "1"]
        command += ["--results", sandbox.directory / "results", "--limit", "10", *options]
        return run(sandbox, command, sandbox.environment())

    return call


def test_differences_are_found_and_named(compare):
    result = compare("--lean", "-o", "json")
    assert result.code == 1, result.text()
    report = json.loads(result.stdout)
    assert report["files"]["tiny_test.py"] == {
        "passed": 0,
        "not_asked": 2,
        "failed": 1,
        "skipped": 0,
        "only_salus": 4,
        "known": 0,
        "only_cpu": 0,
    }
    found = {entry["test"].split("::")[1]: entry for entry in report["differences"]}
    assert found["test_fails_here"]["outcome"] == "failed"
    assert "not through Salus" in found["test_fails_here"]["error"]
    assert found["test_skipped_here"]["outcome"] == "skipped"
    assert "SIGABRT" in found["test_ends_the_process"]["error"]
    assert "nothing happened for 10 s" in found["test_never_ends"]["error"]

    again = compare("--report-only")
    assert again.code == 1
    assert "tiny_test.py::test_ends_the_process (failed)" in again.stdout, again.text()

    # What is stored is not run again: an interrupted run goes on.
    stored = compare("--side", "cpu")
    assert "[1/1]" not in stored.stderr, stored.text()

    # In full, both sides run all of it.
    full = json.loads(compare("--again", "all", "-o", "json").stdout)["files"]["tiny_test.py"]
    assert (full["passed"], full["not_asked"], full["only_salus"]) == (2, 0, 4)


def test_a_side_alone_is_no_comparison(compare):
    result = compare("--side", "cpu")
    assert result.code == 1
    assert "salus tiny_test.py: not run to its end" in result.stdout, result.text()


def test_a_checkout_without_the_file(compare, sandbox):
    (sandbox.directory / "checkout" / "tests" / "tiny_test.py").unlink()
    result = compare()
    assert result.code == 1
    assert "error: no `tiny_test.py` in" in result.stderr, result.text()
