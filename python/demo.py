"""Three unmodified scripts share one device through Salus: what `make demo` shows.

Starts a service on the CPU device in a temporary directory, runs `examples/` through it at once,
shows their progress, then the same scripts without Salus, one after another, to compare the
losses bit for bit. Needs the wheel in the environment of the Python that runs it; nothing else.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from harness import EXAMPLES, Daemon, Job, Sandbox, python, salus_binary, vendor_plugin  # noqa: E402

NAMES = ("mlp", "cnn", "transformer")

# The bits of a result depend on the size of the plugin's thread pool: the same with and without.
POOL = {"PJRT_NPROC": str(max(2, os.cpu_count() or 2))}

REFRESH_SECONDS = 0.2
# How often a line of progress is written where nobody watches.
QUIET_SECONDS = 5.0

STEP = re.compile(r"step (\d+)/(\d+) loss (\S+)")
FINAL = re.compile(r"final loss (\S+) bits (\w+)")


@dataclass
class Run:
    """One script under way: what it printed, and the most that `salus ps` said about it."""

    name: str
    job: Job
    step: int = 0
    steps: int = 0
    loss: str = ""
    bits: str = ""
    session: dict = field(default_factory=dict)
    peak: dict = field(default_factory=lambda: {"resident_bytes": 0, "scratch_bytes": 0})

    def is_running(self) -> bool:
        return self.job.process.poll() is None

    def follow(self) -> None:
        printed = self.job.stdout
        if steps := STEP.findall(printed):
            step, of, self.loss = steps[-1]
            self.step, self.steps = int(step), int(of)
        if found := FINAL.search(printed):
            self.loss, self.bits = found[1], found[2]

    def note(self, session: dict) -> None:
        self.session = session
        for key in self.peak:
            self.peak[key] = max(self.peak[key], session[key])

    def finish(self) -> None:
        self.job.result().ok()
        self.follow()
        if not self.bits:
            raise RuntimeError(f"{self.name}.py printed no final loss")


def main() -> int:
    missing = [str(path) for path in (salus_binary(), vendor_plugin()) if not path.exists()]
    if missing:
        print(f"error: missing: {', '.join(missing)}\n\nhint: run `make demo`", file=sys.stderr)
        return 2
    directory = Path(tempfile.mkdtemp(prefix="salus-demo-"))
    try:
        return demo(Sandbox(directory), sys.argv[1:])
    except (AssertionError, RuntimeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def demo(sandbox: Sandbox, arguments: list[str]) -> int:
    def start(name: str, env: dict[str, str]) -> Run:
        command = python(EXAMPLES / f"{name}.py", *arguments)
        return Run(name, Job(sandbox, command, env | POOL))

    daemon = Daemon(sandbox, salus_binary(), env=POOL)
    try:
        device = daemon.start().ps()["device"]
        lanes = "1 lane" if device["lanes"] == 1 else f"{device['lanes']} lanes"
        gibibytes = device["capacity_bytes"] / (1 << 30)
        print(f"device: {device['platform']}, {lanes}, {gibibytes:.1f} GiB, {device['policy']}")
        print(f"running {', '.join(NAMES)} at once through Salus …", flush=True)
        shared = {name: start(name, sandbox.salus(daemon.socket)) for name in NAMES}
        watch(shared, daemon)
        for run in shared.values():
            run.finish()
    finally:
        daemon.stop(show_log=False)
    print("running them once more without Salus, one after another …", flush=True)
    alone = {}
    try:
        for name in NAMES:
            alone[name] = start(name, sandbox.direct())
            alone[name].finish()
    finally:
        sandbox.assert_nothing_left()
    print()
    print_table(*result_table(shared, alone))
    same = all(shared[name].bits == alone[name].bits for name in NAMES)
    print("\nevery loss is equal to the bit" if same else "\nlosses differ")
    return 0 if same else 1


# ---------------------------------------------------------------- what is shown


def watch(runs: dict[str, Run], daemon: Daemon) -> None:
    """Shows progress until all have ended."""
    live = sys.stdout.isatty()
    shown, next_line, last = 0, 0.0, None
    while any(run.is_running() for run in runs.values()):
        sessions = {session["pid"]: session for session in daemon.sessions()}
        for run in runs.values():
            run.follow()
            if session := sessions.get(run.job.pid):
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
        state = run.session.get("state", "starts") if run.is_running() else "done"
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
