"""Runs JAX's own tests on JAX's CPU backend and through Salus, and prints what differs.

    python tests/jax_suite/compare.py --tests CHECKOUT

`README.md` beside this file says how to get a checkout and what to make of the result.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import signal
import sys
import time
from pathlib import Path

import tomllib

from runs import SIDES, FileRun, Record, Settings

HERE = Path(__file__).resolve().parent

# What an ordinary script on one device may reach. Patterns, because JAX splits files now and then.
FILES = """
aot_test api_test array_test batching_test buffer_callback_test checkify_test
custom_linear_solve_test debug_nans_test debugging_primitives_test eigh_test error_check_test
export_test ffi_test fused_attention_*_test image_test jet_test key_reuse_test lax_control_flow_test
lax_numpy_*test lax_scipy_*test lax_test lax_vmap_*test linalg_test memories_test multibackend_test
mutable_array_test nn_test ode_test optimizers_test pjit_test pmap_test profiler_test
python_callback_test random_lax_test scipy_*_test shard_map_test sparse_*test sparsify_test
state_test stax_test svd_test
""".split()


def main() -> int:
    arguments = parse()
    # However it is stopped, also in the background of a shell: what it started ends with it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    settings = Settings(
        checkout=arguments.tests.resolve(),
        results=arguments.results.resolve(),
        every=arguments.every,
        cases=arguments.cases,
        limit=arguments.limit,
        lean=arguments.lean,
    )
    files = files_of(settings.checkout, arguments.files or FILES)
    sides = SIDES if arguments.side == "both" else (arguments.side,)
    if settings.lean:
        sides = sides[::-1]  # the standard is asked about what did not pass here
    if arguments.again:
        for file in files:
            for side in sides:
                settings.record(side, file).forget(failed_only=arguments.again == "failed")
    if not arguments.report_only:
        run_all(settings, files, sides)
    report = compare(settings, files, read_known(HERE / "known.toml"))
    if arguments.output == "json":
        print(json.dumps(report, indent=2))
    else:
        print_table(report)
    return 1 if report["differences"] or report["broken"] else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", help="test files or patterns; default: a list of 60")
    parser.add_argument("--tests", type=Path, required=True, help="a checkout of JAX")
    parser.add_argument("--side", choices=[*SIDES, "both"], default="both")
    parser.add_argument("--every", type=int, default=4, help="run every Nth test, by a hash")
    parser.add_argument("--cases", type=int, default=2, help="cases that JAX generates per test")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds a test may take")
    parser.add_argument("--results", type=Path, default=Path("target/jax_suite"))
    parser.add_argument(
        "--again",
        choices=["all", "failed"],
        help="run tests again that have a result already: after a change of Salus",
    )
    parser.add_argument(
        "--lean",
        action="store_true",
        help="on JAX's CPU backend, run only what did not pass through Salus",
    )
    parser.add_argument("--report-only", action="store_true", help="run nothing")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    return parser.parse_args()


def files_of(checkout: Path, patterns: list[str]) -> list[str]:
    found = []
    for pattern in patterns:
        name = pattern if pattern.endswith(".py") else f"{pattern}.py"
        matches = sorted(path.name for path in (checkout / "tests").glob(name))
        if not matches:
            sys.exit(
                f"error: no `{name}` in `{checkout / 'tests'}`\n"
                "hint: --tests names a checkout of JAX at the version that is installed"
            )
        found += [match for match in matches if match not in found]
    return sorted(found)


# ---------------------------------------------------------------- running


def run_all(settings: Settings, files: list[str], sides) -> None:
    todo = [
        (side, file)
        for file in files
        for side in sides
        if settings.record(side, file).finished != settings.sample()
    ]
    begin = time.monotonic()
    for index, (side, file) in enumerate(todo):
        record = settings.record(side, file)
        if record.finished:  # of another sample
            record.forget(failed_only=False)
        progress = Progress(settings, todo, index, begin)
        progress.last(FileRun(settings, side, file, progress).run())


class Progress:
    """One line on a terminal that is written over, one line per file in a log."""

    def __init__(self, settings: Settings, todo, index: int, begin: float):
        self.settings, self.todo, self.index, self.begin = settings, todo, index, begin
        self.tty = sys.stderr.isatty()

    def __call__(self, record: Record) -> None:
        if self.tty:
            print(f"\r\033[K{self._line(record)}", end="", file=sys.stderr, flush=True)

    def last(self, record: Record) -> None:
        start = "\r\033[K" if self.tty else ""
        print(f"{start}{self._line(record)}", file=sys.stderr, flush=True)

    def _line(self, record: Record) -> str:
        side, file = self.todo[self.index]
        of = len(record.collected) if record.collected is not None else "?"
        return (
            f"[{self.index + 1}/{len(self.todo)}] {side} {file}: {len(record.tests)} of {of}, "
            f"{record.failed()} failed; {self._left()}"
        )

    def _left(self) -> str:
        """From what the files took before, on this side or the other; else from the average."""
        known = {pair: self._seconds(pair) for pair in self.todo}
        times = [seconds for seconds in known.values() if seconds]
        average = sum(times) / len(times) if times else 0.0
        expected = [known[pair] or average for pair in self.todo]
        done, left = sum(expected[: self.index]), sum(expected[self.index :])
        spent = time.monotonic() - self.begin
        pace = spent / done if done else 1.0
        return f"{spent / 60:.0f} min, about {left * pace / 60:.0f} min left"

    def _seconds(self, pair) -> float:
        side, file = pair
        own = self.settings.record(side, file).seconds
        other = SIDES[1 - SIDES.index(side)]
        return own or self.settings.record(other, file).seconds


# ---------------------------------------------------------------- comparing


def read_known(path: Path) -> list[dict]:
    """Pairs of a pattern and the reason."""
    groups = tomllib.loads(path.read_text()).get("known", [])
    return [
        {"pattern": pattern, "reason": group["reason"]}
        for group in groups
        for pattern in group["tests"]
    ]


def compare(settings: Settings, files: list[str], known: list[dict]) -> dict:
    report = {
        "sample": settings.sample(),
        "files": {},
        "differences": [],
        "known": [],
        "known_but_passed": [],
        "broken": [],
    }
    for file in files:
        cpu, salus = (settings.record(side, file) for side in SIDES)
        for side, record in zip(SIDES, (cpu, salus)):
            if record.broken:
                report["broken"].append({"file": file, "side": side, "error": record.broken})
            elif not record.finished:
                report["broken"].append({"file": file, "side": side, "error": "not run to its end"})
        report["files"][file] = _compare_file(cpu, salus, known, report)
    return report


def _compare_file(cpu: Record, salus: Record, known: list[dict], report: dict) -> dict:
    counts = dict.fromkeys(COLUMNS, 0)
    for name in sorted(cpu.tests.keys() | salus.tests.keys()):
        here, there = _outcome(cpu, name), _outcome(salus, name)
        match = next((k for k in known if fnmatch.fnmatchcase(name, k["pattern"])), None)
        fine = "absent" if name.endswith("::(exit)") else "passed"
        if there == "absent" and not salus.finished:
            continue  # not run yet, which is said of the file
        if here == fine and there != fine:
            error = salus.tests.get(name, {}).get("error", "")
            entry = {"test": name, "outcome": there, "error": error}
            counts["known" if match else "only_salus"] += 1
            report["known" if match else "differences"].append(
                entry | ({"reason": match["reason"]} if match else {})
            )
            continue
        if match and there == fine:
            report["known_but_passed"].append(name)
        if there == "passed" and here == "absent":
            counts["not_asked"] += 1
        elif there == "passed" and here != "passed":
            counts["only_cpu"] += 1
        elif here in counts:
            counts[here] += 1
    return counts


def _outcome(record: Record, name: str) -> str:
    return record.tests[name]["outcome"] if name in record.tests else "absent"


# ---------------------------------------------------------------- printing

COLUMNS = {
    "passed": "passed",
    "not_asked": "passed here, not run on cpu",
    "failed": "failed",
    "skipped": "skipped",
    "only_cpu": "fails on cpu only",
    "known": "known",
    "only_salus": "FAILS ON SALUS ONLY",
}


def print_table(report: dict) -> None:
    width = max(map(len, report["files"]), default=4)
    print(f"{'file':{width}}  " + "  ".join(COLUMNS.values()))
    total = dict.fromkeys(COLUMNS, 0)
    for file, counts in report["files"].items():
        print(f"{file:{width}}  " + _row(counts))
        for key in total:
            total[key] += counts[key]
    print(f"{'all':{width}}  " + _row(total))
    for entry in report["broken"]:
        print(f"\n{entry['side']} {entry['file']}: {_short(entry['error'])}")
    if report["differences"]:
        print("\nPasses on JAX's CPU backend and not through Salus:")
    for entry in report["differences"]:
        print(f"  {entry['test']} ({entry['outcome']})\n      {_short(entry['error'])}")
    if report["known_but_passed"]:
        print("\nIn known.toml, but passed:")
    for name in report["known_but_passed"]:
        print(f"  {name}")


def _row(counts: dict) -> str:
    return "  ".join(f"{counts[key]:{len(title)}d}" for key, title in COLUMNS.items())


def _short(error: str) -> str:
    """What says most of an error on one line."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    # An assertion of numpy begins with nothing but its name.
    first = [line for line in lines[:2] if line != "AssertionError:"]
    return (" ".join(first) or "no message")[:200]


if __name__ == "__main__":
    sys.exit(main())
