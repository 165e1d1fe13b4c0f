"""Three unmodified scripts share one device through Salus: what `make demo` shows.

Starts a service on the CPU device in a temporary directory, runs `examples/` through it at once,
shows their progress, then the same scripts without Salus, one after another, to compare the
losses bit for bit. Needs the wheel in the environment of the Python that runs it; nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
NAMES = ("mlp", "cnn", "transformer")
SALUS = Path(sys.executable).parent / "salus"
PLUGIN = Path(sysconfig.get_path("purelib"), "xla_plugins", "xla_cpu_pjrt", "xla_cpu_pjrt.so")

# The bits of a result depend on the size of the plugin's thread pool: the same with and without.
POOL_THREADS = str(max(2, os.cpu_count() or 2))

START_SECONDS = 60.0
REFRESH_SECONDS = 0.2
# How often a line of progress is written where nobody watches.
QUIET_SECONDS = 5.0

STEP = re.compile(r"step (\d+)/(\d+) loss (\S+)")
FINAL = re.compile(r"final loss (\S+) bits (\w+)")


@dataclass
class Run:
    """One script under way: what it printed, and the most that `salus ps` said about it."""

    name: str
    process: subprocess.Popen
    step: int = 0
    steps: int = 0
    loss: str = ""
    bits: str = ""
    session: dict = field(default_factory=dict)
    peak: dict = field(default_factory=lambda: {"resident_bytes": 0, "scratch_bytes": 0})
    errors: str = ""
    readers: list[threading.Thread] = field(default_factory=list)

    def read_in_background(self) -> None:
        """Both pipes are read all the time, so that the script never waits for us."""
        for target in (self.follow, self.keep_errors):
            self.readers.append(threading.Thread(target=target, daemon=True))
            self.readers[-1].start()

    def keep_errors(self) -> None:
        self.errors = self.process.stderr.read()

    def follow(self) -> None:
        for line in self.process.stdout:
            if found := STEP.search(line):
                self.step, self.steps, self.loss = int(found[1]), int(found[2]), found[3]
            elif found := FINAL.search(line):
                self.loss, self.bits = found[1], found[2]

    def note(self, session: dict) -> None:
        self.session = session
        for key in self.peak:
            self.peak[key] = max(self.peak[key], session[key])


def main() -> int:
    missing = [str(path) for path in (SALUS, PLUGIN) if not path.exists()]
    if missing:
        print(f"error: missing: {', '.join(missing)}\n\nhint: run `make demo`", file=sys.stderr)
        return 2
    directory = Path(tempfile.mkdtemp(prefix="salus-demo-"))
    try:
        return demo(directory, sys.argv[1:])
    except (RuntimeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def demo(directory: Path, arguments: list[str]) -> int:
    with service(directory) as env:
        device = ps(env)["device"]
        lanes = "1 lane" if device["lanes"] == 1 else f"{device['lanes']} lanes"
        gibibytes = device["capacity_bytes"] / (1 << 30)
        print(f"device: {device['platform']}, {lanes}, {gibibytes:.1f} GiB, {device['policy']}")
        print(f"running {', '.join(NAMES)} at once through Salus …", flush=True)
        shared = {name: start(name, arguments, env) for name in NAMES}
        watch(shared, env)
    print("running them once more without Salus, one after another …", flush=True)
    alone = {}
    for name in NAMES:
        alone[name] = start(name, arguments, without_salus(directory))
        alone[name].process.wait()
    for run in (*shared.values(), *alone.values()):
        finish(run)
    print()
    print_table(*result_table(shared, alone))
    same = all(shared[name].bits == alone[name].bits for name in NAMES)
    print("\nevery loss is equal to the bit" if same else "\nlosses differ")
    return 0 if same else 1


# ---------------------------------------------------------------- processes


@contextlib.contextmanager
def service(directory: Path):
    """A daemon of our own; the environment of jobs that use it."""
    path, log = directory / "salus.sock", directory / "daemon.log"
    command = [SALUS, "serve", "--socket", path, "--device", "cpu"]
    env = environment(SALUS_CACHE_DIR=str(directory / "cache"))
    with log.open("wb") as out:
        daemon = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env
        )
    try:
        of_jobs = environment(JAX_PLATFORMS="salus,cpu", SALUS_SOCKET=str(path))
        await_device(of_jobs, daemon, log)
        yield of_jobs
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait()


def await_device(env: dict[str, str], daemon: subprocess.Popen, log: Path) -> None:
    """Until the service listens and knows its device, which it opens after it listens."""
    end = time.monotonic() + START_SECONDS
    while True:
        with contextlib.suppress(RuntimeError):
            # While it opens the device it answers, too, and knows nothing of it.
            if ps(env)["device"]["platform"]:
                return
        if daemon.poll() is not None:
            raise RuntimeError(f"the service ended at once:\n{log.read_text()}")
        if time.monotonic() > end:
            raise RuntimeError(f"the service has no device:\n{log.read_text()}")
        time.sleep(REFRESH_SECONDS)


def environment(**more: str) -> dict[str, str]:
    foreign = ("JAX_", "SALUS_", "PJRT_", "XLA_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    path = f"{SALUS.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return kept | {"PJRT_NPROC": POOL_THREADS, "TF_CPP_MIN_LOG_LEVEL": "3", "PATH": path} | more


def without_salus(directory: Path) -> dict[str, str]:
    config = directory / "direct.json"
    options = {"cpu_device_count": 1}
    config.write_text(json.dumps({"library_path": str(PLUGIN), "create_options": options}))
    named = {"PJRT_NAMES_AND_LIBRARY_PATHS": f"direct:{config}", "JAX_PLATFORMS": "direct,cpu"}
    return environment(**named)


def start(name: str, arguments: list[str], env: dict[str, str]) -> Run:
    command = [sys.executable, EXAMPLES / f"{name}.py", *arguments]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )
    run = Run(name, process)
    run.read_in_background()
    return run


def finish(run: Run) -> None:
    code = run.process.wait()
    for reader in run.readers:
        reader.join()
    if code != 0 or not run.bits:
        raise RuntimeError(f"{run.name}.py ended with status {code}:\n{run.errors[-4000:]}")


def ps(env: dict[str, str]) -> dict:
    shown = subprocess.run([SALUS, "ps", "-o", "json"], env=env, capture_output=True, text=True)
    if shown.returncode != 0:
        raise RuntimeError(f"`salus ps` ended with status {shown.returncode}:\n{shown.stderr}")
    return json.loads(shown.stdout)


# ---------------------------------------------------------------- what is shown


def watch(runs: dict[str, Run], env: dict[str, str]) -> None:
    """Shows progress until all have ended."""
    live = sys.stdout.isatty()
    shown, next_line, last = 0, 0.0, None
    while any(run.process.poll() is None for run in runs.values()):
        sessions = {session["pid"]: session for session in ps(env)["sessions"]}
        for run in runs.values():
            if session := sessions.get(run.process.pid):
                run.note(session)
        if live:
            shown = redraw(progress_lines(runs), shown)
        elif time.monotonic() >= next_line:
            line = "  ".join(f"{run.name} {run.step}/{run.steps or '?'}" for run in runs.values())
            if line != last:
                print(line, flush=True)
            next_line, last = time.monotonic() + QUIET_SECONDS, line
        time.sleep(REFRESH_SECONDS)
    if live:
        redraw(progress_lines(runs), shown)


def progress_lines(runs: dict[str, Run]) -> list[str]:
    lines = []
    for run in runs.values():
        done = int(24 * run.step / run.steps) if run.steps else 0
        state = run.session.get("state", "starts") if run.process.poll() is None else "done"
        bar, steps = "█" * done + "·" * (24 - done), f"{run.step:>4}/{run.steps or '?':<4}"
        lines.append(f"{run.name:<12} {bar} {steps} loss {run.loss:<9} {state}")
    return lines


def redraw(lines: list[str], shown: int) -> int:
    """Writes the lines over those of the last time."""
    up = f"\x1b[{shown}A" if shown else ""
    sys.stdout.write(up + "".join(f"\x1b[2K{line}\n" for line in lines))
    sys.stdout.flush()
    return len(lines)


def result_table(shared: dict[str, Run], alone: dict[str, Run]):
    head = [
        "job",
        "iterations",
        "device time",
        "waiting",
        "persistent",
        "ephemeral",
        "loss",
        "without Salus",
        "equal",
    ]
    rows = []
    for name, run in shared.items():
        other, session = alone[name], run.session
        rows.append(
            [
                name,
                str(session.get("iterations", "?")),
                f"{session.get('device_time_ms', 0) / 1000:.2f} s",
                f"{session.get('waiting_ms', 0) / 1000:.2f} s",
                mebibytes(run.peak["resident_bytes"]),
                mebibytes(run.peak["scratch_bytes"]),
                run.loss,
                other.loss,
                "to the bit" if run.bits == other.bits else f"NO: {run.bits} {other.bits}",
            ]
        )
    return head, rows


def mebibytes(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB"


def print_table(head: list[str], rows: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(head, *rows)]
    for row in (head, ["-" * width for width in widths], *rows):
        first, *rest = (cell.rjust(width) for cell, width in zip(row, widths))
        print("  ".join([first.strip().ljust(widths[0]), *rest]))


if __name__ == "__main__":
    sys.exit(main())
