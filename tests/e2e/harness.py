"""Runs scripts with and without Salus, and daemons that leave nothing behind: for the tests and
the demo.

Every test has its own directory, socket and cache. Whatever a test starts carries a mark in its
environment (`SALUS_TEST_MARK`), by which leftovers are found even if they detached themselves.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE / "scripts"
ROOT = HERE.parent.parent
EXAMPLES = ROOT / "examples"

# Generous: CI runs this on two cores that are busy with something else.
DEADLINE_SECONDS = 300.0

# For what should take milliseconds.
PROMPT_SECONDS = 60.0

# The bits of a result depend on the size of the plugin's thread pool: the same on both sides.
POOL_THREADS = "2"

# What the plugin needs to compute right products, which Salus sets for every program
# (`crates/device/src/requirements.rs`).
REQUIRED_FLAGS = "--xla_cpu_use_xnnpack=false"

MARK = "SALUS_TEST_MARK"


# ---------------------------------------------------------------- waiting


def wait_for(predicate, what: str, seconds: float = PROMPT_SECONDS):
    """The first true value of `predicate()`. Other processes give no event to wait on."""
    end = time.monotonic() + seconds
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"after {seconds:g} s still not true: {what}")
        time.sleep(0.02)


# ---------------------------------------------------------------- environment


def vendor_plugin() -> Path:
    site = Path(sysconfig.get_path("purelib"))
    return site / "xla_plugins" / "xla_cpu_pjrt" / "xla_cpu_pjrt.so"


def salus_binary() -> Path:
    """The binary that the wheel put beside this Python, as a user has it."""
    given = os.environ.get("SALUS_TEST_BIN")
    return Path(given) if given else Path(sys.executable).parent / "salus"


def salus_library() -> Path:
    import salus

    given = os.environ.get("SALUS_LIBRARY")
    return Path(given) if given else Path(salus.__file__).parent / "libpjrt_salus.so"


class Sandbox:
    """A directory, and an environment in which nothing outside of it is seen or written."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.mark = uuid.uuid4().hex
        self.jobs: list[Job] = []
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "tmp").mkdir(exist_ok=True)

    def environment(self, **more: str) -> dict[str, str]:
        # Libraries behave differently where `CI` is set (NumPyro drops its progress bars), and
        # users do not have it.
        foreign = ("CI", "JAX", "SALUS_", "PJRT_", "XLA_", "XDG_", "KERAS_", "PYTEST_")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        if "SALUS_LIBRARY" in os.environ:
            kept["SALUS_LIBRARY"] = os.environ["SALUS_LIBRARY"]
        kept.update(
            PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            VIRTUAL_ENV=sys.prefix,
            HOME=str(self.directory),
            TMPDIR=str(self.directory / "tmp"),
            KERAS_HOME=str(self.directory / "keras"),
            # The vendor's plugin talks on stderr; tests look there for warnings.
            TF_CPP_MIN_LOG_LEVEL="3",
            PJRT_NPROC=POOL_THREADS,
            # Where a test names no device, it is the CPU, whatever the machine has.
            CUDA_VISIBLE_DEVICES="",
            ROCR_VISIBLE_DEVICES="",
            SALUS_CACHE_DIR=str(self.directory / "cache"),
        )
        kept[MARK] = self.mark
        kept.update(more)
        return kept

    def direct(self) -> dict[str, str]:
        """The vendor's plugin without Salus, one device."""
        config = self.directory / "direct.json"
        options = {"cpu_device_count": 1}
        config.write_text(
            json.dumps({"library_path": str(vendor_plugin()), "create_options": options})
        )
        return self.environment(
            PJRT_NAMES_AND_LIBRARY_PATHS=f"direct:{config}",
            JAX_PLATFORMS="direct,cpu",
            XLA_FLAGS=REQUIRED_FLAGS,
        )

    def cpu(self) -> dict[str, str]:
        """JAX's own CPU backend, which has LAPACK; it is another build of XLA than the plugin."""
        return self.environment(JAX_PLATFORMS="cpu")

    def salus(self, socket_path: Path | str) -> dict[str, str]:
        return self.environment(JAX_PLATFORMS="salus,cpu", SALUS_SOCKET=str(socket_path))

    def processes(self) -> list[int]:
        """Everything alive that was started, directly or not, in this sandbox."""
        return [pid for pid in _all_pids() if pid != os.getpid() and self._is_ours(pid)]

    def _is_ours(self, pid: int) -> bool:
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False
        # A process may have cleared its environment, but then it was told where to work.
        told = bytes(self.directory) + b"/" in command
        return (self.mark.encode() in environ or told) and _state(pid) not in ("Z", "X", None)

    def kill_all(self) -> None:
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def assert_nothing_left(self) -> None:
        for job in self.jobs:
            job.kill()  # a test that failed early left them; they are ours, not Salus'
        try:
            wait_for(lambda: not self.processes(), "no process is left", seconds=30.0)
        except AssertionError:
            left = {pid: command_of(pid) for pid in self.processes()}
            self.kill_all()
            raise AssertionError(f"left running: {left}") from None


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _state(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return "?"


def descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for other in _all_pids():
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{other}/stat").read_text().rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(other)
    found, todo = [], [pid]
    while todo:
        for child in parents.get(todo.pop(), []):
            found.append(child)
            todo.append(child)
    return found


# ---------------------------------------------------------------- jobs


@dataclass
class Result:
    code: int
    stdout: str
    stderr: str

    def ok(self) -> Result:
        assert self.code == 0, f"exit status {self.code}\n{self.text()}"
        return self

    def failed_with_exception(self) -> Result:
        """Ended by itself with a Python exception: no abort, no signal, no hang."""
        assert self.code == 1, f"exit status {self.code}, not a Python exception\n{self.text()}"
        assert "Traceback (most recent call last)" in self.stderr, self.text()
        return self

    def text(self) -> str:
        return f"--- stdout\n{self.stdout[-4000:]}\n--- stderr\n{self.stderr[-8000:]}"


# What LAPACK prints of some matrices that are not finite, where it is in the job's process.
LAPACK_SAYS = " ** On entry to "


def assert_same_report(found: str, expected: str) -> None:
    """Equal lines, but for numbers that say how equal they are (`report_about` in `report.py`)."""
    found, expected = (
        [line for line in text.splitlines() if not line.startswith(LAPACK_SAYS)]
        for text in (found, expected)
    )
    for ours, theirs in zip(found, expected, strict=True):
        if not theirs.startswith("about "):
            assert ours == theirs
            continue
        (label, numbers), (their_label, their_numbers) = (
            line.split(": ") for line in (ours, theirs)
        )
        assert label == their_label
        tolerance = float(label.split()[1])
        pairs = zip(json.loads(numbers), json.loads(their_numbers), strict=True)
        for a, b in pairs:
            assert math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance), (label, a, b)


class Job:
    """A process whose output is read from files, so that it can never block on a pipe."""

    _count = 0

    def __init__(self, sandbox: Sandbox, command: list, env: dict[str, str], **popen):
        Job._count += 1
        base = sandbox.directory / f"job{Job._count}"
        self._out, self._err = base.with_suffix(".out"), base.with_suffix(".err")
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=env,
                cwd=sandbox.directory,
                start_new_session=True,
                **popen,
            )
        sandbox.jobs.append(self)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def stdout(self) -> str:
        return self._out.read_text(errors="replace")

    @property
    def stderr(self) -> str:
        return self._err.read_text(errors="replace")

    def wait_for_line(self, text: str, seconds: float = DEADLINE_SECONDS) -> None:
        def seen():
            if text in self.stdout:
                return True
            assert self.process.poll() is None, f"ended before `{text}`\n{self.result().text()}"
            return False

        wait_for(seen, f"the job prints `{text}`", seconds)

    def result(self, seconds: float = DEADLINE_SECONDS) -> Result:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            text = Result(-9, self.stdout, self.stderr).text()
            raise AssertionError(f"hangs: killed after {seconds:g} s\n{text}") from None
        return Result(self.process.returncode, self.stdout, self.stderr)

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
            self.process.wait()


def python(script: Path | str, *args) -> list:
    return [sys.executable, script, *args]


def run(sandbox: Sandbox, command: list, env: dict[str, str], **popen) -> Result:
    return Job(sandbox, command, env, **popen).result()


# ---------------------------------------------------------------- daemons


class Daemon:
    """`salus serve` in its own sandbox."""

    def __init__(
        self,
        sandbox: Sandbox,
        binary: Path,
        *,
        device="cpu",
        config=None,
        options=(),
        env=None,
        prefix=(),
    ):
        self.sandbox = sandbox
        self.binary = binary
        self.socket = sandbox.directory / "salus.sock"
        self.log = sandbox.directory / "daemon.log"
        self._env = sandbox.environment(**(env or {}))
        self._prefix = list(prefix)
        self._options = ["--device", device, *options]
        if config is not None:
            path = sandbox.directory / "salus.toml"
            path.write_text(config)
            self._options += ["--config", path]
        self.process: subprocess.Popen | None = None

    def start(self) -> Daemon:
        command = [*self._prefix, self.binary, "serve", "--socket", self.socket, *self._options]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._env,
                cwd=self.sandbox.directory,
                start_new_session=True,
            )
        wait_for(self._is_ready, "the daemon accepts connections and answers `salus ps`")
        return self

    def _is_ready(self) -> bool:
        code = self.process.poll()
        assert code is None, f"the daemon ended with {code}\n{self.log_text()}"
        if not accepts(self.socket):
            return False
        shown = self.command("ps", "-o", "json")
        # It answers while it still opens devices, whose platform it then does not know.
        return shown.code == 0 and all(
            device["platform"] for device in json.loads(shown.stdout)["devices"]
        )

    def command(self, *args) -> Result:
        env = self.sandbox.environment(SALUS_SOCKET=str(self.socket))
        return run(self.sandbox, [self.binary, *args], env)

    def ps(self) -> dict:
        return json.loads(self.command("ps", "-o", "json").ok().stdout)

    def sessions(self) -> list[dict]:
        return self.ps()["sessions"]

    def session_of(self, pid: int) -> dict | None:
        return next((s for s in self.sessions() if s["pid"] == pid), None)

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")[-8000:] if self.log.exists() else ""

    def kill(self) -> None:
        """SIGKILL to the supervisor alone, as the kernel or a person would do it."""
        self.process.kill()
        self.process.wait()

    def stop(self, *, show_log: bool = True) -> None:
        """Ends it as a service manager would, and insists that nothing stays."""
        if self.process is None:
            return
        try:
            if self.process.poll() is None:
                self.process.terminate()
                self.process.wait(PROMPT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError("the daemon ignores SIGTERM") from None
        finally:
            if show_log:
                print(f"--- daemon.log\n{self.log_text()}")
        self.sandbox.assert_nothing_left()


def accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
            return True
        except OSError:
            return False
