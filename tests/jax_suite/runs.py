"""Runs one of JAX's test files on one side and keeps a record of it.

A record is a file of JSON lines, most of them written by `recorder.py`, that ends with `finished`.
A run that was interrupted goes on where it stopped. A test that takes its process with it, that
loses the device, or that never ends is recorded as failed, and the rest runs in a new process.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

import recorder  # noqa: E402
from harness import Daemon, Sandbox, salus_binary  # noqa: E402

SIDES = ("cpu", "salus")
PLATFORMS = {"cpu": "cpu", "salus": "salus,cpu"}

# What importing JAX and collecting a file, or leaving the process, may take on a busy machine.
BETWEEN_TESTS_SECONDS = 600.0

# pytest's exit statuses for: all passed, some failed, none selected.
ORDINARY_ENDS = (0, 1, 5)

# A test of this name in the record stands for the end of the process.
EXIT = "(exit)"


@dataclass
class Settings:
    checkout: Path
    results: Path
    every: int
    cases: int
    limit: float
    # Whether JAX's CPU backend runs only what did not pass through Salus.
    lean: bool = False

    def sample(self) -> dict:
        """Only records of the same sample can be compared."""
        return {"every": self.every, "cases": self.cases}

    def record(self, side: str, file: str) -> Record:
        return Record.read(self.results / side / f"{file}.jsonl")


@dataclass
class Record:
    """What is known of one file on one side."""

    path: Path
    collected: list[str] | None = None
    tests: dict[str, dict] = field(default_factory=dict)
    broken: str = ""
    running: str | None = None
    finished: dict | None = None
    seconds: float = 0.0

    @classmethod
    def read(cls, path: Path) -> Record:
        record = cls(path)
        lines = path.read_text().splitlines() if path.exists() else []
        for line in lines:
            # The last line of a process that was killed may be cut off.
            with contextlib.suppress(json.JSONDecodeError):
                record._take(json.loads(line))
        return record

    def _take(self, entry: dict) -> None:
        if "collected" in entry:
            self.collected = entry["collected"]
        elif "started" in entry:
            self.running = entry["started"]
        elif "test" in entry:
            self.tests[entry["test"]] = entry
            self.running = None
        elif "broken" in entry:
            self.broken = entry["broken"]
        elif "seconds" in entry:
            self.seconds += entry["seconds"]
        elif "finished" in entry:
            self.finished = entry["finished"]

    def append(self, **entry) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def forget(self, *, failed_only: bool) -> None:
        """Makes tests run again: all, or those that failed."""
        kept = [t for t in self.tests.values() if failed_only and t["outcome"] != "failed"]
        self.path.unlink(missing_ok=True)
        for entry in kept:
            self.append(**entry)

    def failed(self) -> int:
        return sum(test["outcome"] == "failed" for test in self.tests.values())


class FileRun:
    """One file on one side, in as many processes as it takes."""

    def __init__(self, settings: Settings, side: str, file: str, progress):
        self.settings, self.side, self.file, self.progress = settings, side, file, progress
        self.path = settings.record(side, file).path
        # Not below `results`: its path may be too long for a socket's name (108 bytes).
        self.directory = Path(tempfile.mkdtemp(prefix="salus-suite-"))
        self.sandbox = Sandbox(self.directory)
        self.daemon: Daemon | None = None

    def run(self) -> Record:
        try:
            goes_on = True
            while goes_on:
                begin = time.monotonic()
                goes_on = self._one_process()
                self._read().append(seconds=round(time.monotonic() - begin, 1))
        finally:
            self._stop_daemon()
            self.sandbox.kill_all()
            shutil.rmtree(self.directory, ignore_errors=True)
        self._read().append(finished=self.settings.sample())
        return self._read()

    def _read(self) -> Record:
        return Record.read(self.path)

    def _one_process(self) -> bool:
        """Whether something is left to run."""
        before = self._read()
        code, killed = self._watch(self._start())
        record = self._read()
        if record.broken:
            return False
        if record.collected is None:
            why = killed or f"the process {_end_of(code)} before it had collected the tests"
            record.append(broken=f"{why}\n{self._log_tail()}")
            return False
        if record.running:
            why = killed or f"the process {_end_of(code)}"
            self._fail(record, record.running, f"{why}\n{self._log_tail()}")
        elif code == recorder.DEVICE_LOST:
            pass  # recorded by the process itself
        elif killed or code not in ORDINARY_ENDS:
            why = killed or f"the process {_end_of(code)} after its last test"
            self._fail(record, f"{self.file}::{EXIT}", f"{why}\n{self._log_tail()}")
            return False
        if code != 0:
            self._stop_daemon()  # it may be what failed
        done = self._done()
        left = [name for name in record.collected if name not in done]
        # Each process must have got further, or this would never end.
        return bool(left) and len(self._read().tests) > len(before.tests)

    def _done(self) -> set[str]:
        """What need not run (any more)."""
        done = set(self._read().tests)
        if self.settings.lean and self.side == "cpu":
            salus = self.settings.record("salus", self.file).tests
            done |= {name for name, test in salus.items() if test["outcome"] == "passed"}
        return done

    def _start(self) -> subprocess.Popen:
        done = self.directory / "done.json"
        done.write_text(json.dumps(sorted(self._done())))
        environment = self.sandbox.environment(
            JAX_PLATFORMS=PLATFORMS[self.side],
            JAX_NUM_GENERATED_CASES=str(self.settings.cases),
            PYTHONPATH=str(HERE),
            PYTHONDONTWRITEBYTECODE="1",
            **{
                recorder.RECORD: str(self.path.resolve()),
                recorder.EVERY: str(self.settings.every),
                recorder.DONE: str(done),
            },
        )
        if self.side == "salus":
            environment["SALUS_SOCKET"] = str(self._running_daemon().socket)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # `-s`: JAX's tests capture what is printed themselves.
        command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "recorder"]
        command += ["-p", "no:cacheprovider"]
        with self._log().open("wb") as log:
            return subprocess.Popen(
                [*command, f"tests/{self.file}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self.settings.checkout,
                start_new_session=True,
            )

    def _watch(self, process: subprocess.Popen) -> tuple[int, str]:
        """The exit status, and why it was killed if it was."""
        killed, size, since = "", -1, time.monotonic()
        try:
            while True:
                try:
                    return process.wait(1.0), killed
                except subprocess.TimeoutExpired:
                    pass
                record = self._read()
                now = self.path.stat().st_size if self.path.exists() else 0
                if now != size:
                    size, since = now, time.monotonic()
                    self.progress(record)
                limit = self.settings.limit if record.running else BETWEEN_TESTS_SECONDS
                if time.monotonic() - since > limit:
                    killed = f"killed: nothing happened for {limit:g} s"
                    os.killpg(process.pid, signal.SIGKILL)
        finally:
            if process.poll() is None:  # interrupted
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _fail(self, record: Record, name: str, error: str) -> None:
        record.append(test=name, outcome="failed", seconds=0.0, error=error)

    def _log(self) -> Path:
        return self.directory / "pytest.log"

    def _log_tail(self) -> str:
        return self._log().read_text(errors="replace")[-recorder.ERROR_CHARACTERS :]

    def _running_daemon(self) -> Daemon:
        if self.daemon is None:
            self.daemon = Daemon(self.sandbox, salus_binary()).start()
        return self.daemon

    def _stop_daemon(self) -> None:
        daemon, self.daemon = self.daemon, None
        if daemon is None or daemon.process is None or daemon.process.poll() is not None:
            return
        daemon.process.terminate()
        try:
            daemon.process.wait(60.0)
        except subprocess.TimeoutExpired:
            daemon.kill()


def _end_of(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
