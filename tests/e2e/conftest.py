"""Fixtures of the end-to-end tests. What they do is in `harness.py`."""

import concurrent.futures
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import standin  # noqa: E402

from harness import (  # noqa: E402
    SCRIPTS,
    Daemon,
    Result,
    Sandbox,
    assert_same_report,
    python,
    run,
    salus_binary,
    salus_library,
    vendor_plugin,
)


def pytest_addoption(parser):
    parser.addoption(
        "--device",
        choices=["cpu", "standin"],
        default="cpu",
        help="what services serve where a test names no device; `standin` stands for CUDA",
    )


def pytest_configure(config):
    config.addinivalue_line("markers", "on_cpu(why): shows what only a CPU device has")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--device") == "cpu":
        return
    for item in items:
        mark = item.get_closest_marker("on_cpu")
        if mark:
            item.add_marker(pytest.mark.skip(reason=f"only on a CPU device: {mark.args[0]}"))


def pytest_sessionstart(session):
    needed = [salus_binary(), salus_library(), vendor_plugin()]
    if session.config.getoption("--device") == "standin":
        needed.append(standin.library())
    missing = [path for path in needed if not path.exists()]
    if missing:
        names = ", ".join(f"`{path}`" for path in missing)
        pytest.exit(f"missing: {names}\nhint: `make test` builds the wheel and installs it", 2)


@pytest.fixture(scope="session")
def salus_bin() -> Path:
    return salus_binary()


def _new_sandbox():
    # Not pytest's own directory: its path is too long for a socket's name (108 bytes).
    directory = Path(tempfile.mkdtemp(prefix="salus-e2e-"))
    sandbox = Sandbox(directory)
    yield sandbox
    try:
        sandbox.assert_nothing_left()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def sandbox():
    yield from _new_sandbox()


@pytest.fixture(scope="session")
def shared_sandbox():
    yield from _new_sandbox()


def _served(sandbox: Sandbox, device: str, options: dict) -> dict:
    """The options of a daemon that serves what `--device` of pytest says."""
    if device == "cpu" or "device" in options:
        return options
    env = standin.environment(sandbox) | (options.get("env") or {})
    return {**options, "device": str(standin.library()), "env": env}


@pytest.fixture(scope="session")
def tested_device(request) -> str:
    return request.config.getoption("--device")


@pytest.fixture
def make_daemon(salus_bin, sandbox, tested_device):
    """`make_daemon(config=…, device=…)` starts a daemon of this test's own."""
    daemons = []

    def make(**options) -> Daemon:
        daemons.append(Daemon(sandbox, salus_bin, **_served(sandbox, tested_device, options)))
        return daemons[-1].start()

    yield make
    for daemon in reversed(daemons):
        daemon.stop()


@pytest.fixture
def daemon(make_daemon) -> Daemon:
    return make_daemon()


@pytest.fixture
def make_standin(make_daemon, sandbox):
    """`make_standin(memory="1GiB")` starts a daemon on a stand-in with these traits, `options` and
    `config` as `make_daemon` takes them, and gives its state file, too."""

    def make(options=(), config=None, **keys) -> tuple[Daemon, standin.State]:
        assert standin.library().exists(), "`make standin` builds the stand-in"
        daemon = make_daemon(
            device=str(standin.library()),
            env=standin.environment(sandbox, **keys),
            options=options,
            config=config,
        )
        return daemon, standin.state_of(sandbox)

    return make


@pytest.fixture(scope="session")
def shared_daemon(salus_bin, shared_sandbox, tested_device):
    """One daemon for all scripts that only compute: a service has many jobs one after another."""
    options = _served(shared_sandbox, tested_device, {})
    daemon = Daemon(shared_sandbox, salus_bin, **options).start()
    yield daemon
    daemon.stop()


@pytest.fixture
def run_direct(sandbox):
    def call(script, *args, on_cpu=False, on_standin=False, **more: str) -> Result:
        if on_standin:
            env = standin.direct(sandbox)
        else:
            env = sandbox.cpu() if on_cpu else sandbox.direct()
        return run(sandbox, python(SCRIPTS / script, *args), env | more)

    return call


@pytest.fixture
def run_salus(sandbox):
    def call(script, *args, daemon: Daemon, **more: str) -> Result:
        env = sandbox.salus(daemon.socket) | more
        return run(sandbox, python(SCRIPTS / script, *args), env)

    return call


@pytest.fixture
def both_ways(run_direct, run_salus, shared_daemon):
    """Runs a script with and without Salus, side by side; the printed results must be equal.

    Without is the vendor's plugin, JAX's own CPU backend, or the stand-in for CUDA.
    """

    def call(script, *args, on_cpu=False, on_standin=False, **more: str) -> Result:
        where = {"on_cpu": on_cpu, "on_standin": on_standin}
        with concurrent.futures.ThreadPoolExecutor() as pool:
            through = pool.submit(run_salus, script, *args, daemon=shared_daemon, **more)
            direct = pool.submit(run_direct, script, *args, **where, **more)
        expected, result = direct.result().ok(), through.result().ok()
        assert expected.stdout, f"`{script}` reported nothing"
        assert_same_report(result.stdout, expected.stdout)
        return result

    return call
