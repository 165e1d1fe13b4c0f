"""A pytest plugin that takes a sample of JAX's tests and records each outcome as it happens.

Loaded by `runs.py` into the process that runs one test file. Every line of the record is written at
once, so that after a crash the record tells which test was running. The settings come in the
environment: pytest's own options would clash with those of JAX's tests.
"""

import json
import os
import sys
import zlib

RECORD = "JAX_SUITE_RECORD"
EVERY = "JAX_SUITE_EVERY"
DONE = "JAX_SUITE_DONE"

# What the process ends with when the device it was using is gone.
DEVICE_LOST = 77

ERROR_CHARACTERS = 4000


def test_id(nodeid: str) -> str:
    """`linalg_test.py::Class::test`, wherever the checkout lies."""
    path, separator, rest = nodeid.partition("::")
    return os.path.basename(path) + separator + rest


def is_sampled(name: str, every: int) -> bool:
    """Depends on the name alone: the same tests on every machine and on both sides."""
    return zlib.crc32(name.encode()) % every == 0


def _write(**entry) -> None:
    with open(os.environ[RECORD], "a") as record:
        record.write(json.dumps(entry) + "\n")


def pytest_configure(config):
    import jax._src
    from jax._src import test_util

    # What only the tests need of JAX is not in its wheel.
    jax._src.__path__.append(os.path.join(config.invocation_params.dir, "jax", "_src"))
    # Files for several devices ask for 8 virtual ones. Here both sides have one.
    test_util.request_cpu_devices = lambda count: None


def pytest_collectreport(report):
    if report.failed:
        _write(broken=_message(report) or "collection failed")


def pytest_collection_modifyitems(config, items):
    every = int(os.environ[EVERY])
    with open(os.environ[DONE]) as file:
        done = set(json.load(file))
    sampled = [item for item in items if is_sampled(test_id(item.nodeid), every)]
    todo = [item for item in sampled if test_id(item.nodeid) not in done]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(todo)])
    items[:] = todo
    _write(collected=[test_id(item.nodeid) for item in sampled])


def pytest_runtest_logstart(nodeid, location):
    _write(started=test_id(nodeid))


_phases: dict = {}


def pytest_runtest_logreport(report):
    seen = _phases.setdefault(report.nodeid, {"outcome": "passed", "error": "", "seconds": 0.0})
    seen["seconds"] += report.duration
    # A test that failed stays failed, whatever its teardown says.
    if report.outcome != "passed" and seen["outcome"] != "failed":
        seen["outcome"] = report.outcome
        seen["error"] = _message(report)
    if report.when == "teardown":
        del _phases[report.nodeid]
        _write(test=test_id(report.nodeid), **(seen | {"seconds": round(seen["seconds"], 2)}))
        if seen["outcome"] == "failed":
            _leave_if_device_is_lost(report.nodeid)


def _message(report) -> str:
    longrepr = report.longrepr
    if isinstance(longrepr, tuple):
        return str(longrepr[2])[:ERROR_CHARACTERS]
    crash = getattr(longrepr, "reprcrash", None)
    return (crash.message if crash else str(longrepr))[:ERROR_CHARACTERS]


def _leave_if_device_is_lost(nodeid):
    """Without its device every later test would fail, too, and tell nothing."""
    import jax
    import numpy as np

    try:
        np.asarray(jax.device_put(np.float32(1), jax.devices()[0]))
    except Exception as error:
        _write(
            test=test_id(nodeid),
            outcome="failed",
            seconds=0.0,
            error=f"the device was lost: {error}"[:ERROR_CHARACTERS],
        )
        sys.stdout.flush()
        os._exit(DEVICE_LOST)
