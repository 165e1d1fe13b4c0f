"""One side of `salus bench`: a stock JAX process that runs blocks of work on command.

The bench starts several of these, some directly on the vendor's plugin and one through Salus; only
their environment differs. Each reads commands from standard input, one JSON object a line, and
answers each with one line:

    {"do": "prepare", "row": "step_1ms"}                   {"arguments": 21}
    {"do": "block", "row": "step_1ms", "seconds": 0.5}     {"step_us": 845.1, "steps": 600}
    {"do": "drop", "row": "step_1ms"}                      {}

A row that has arguments gets them with `prepare`, as `"with": {…}`.

An answer with the key `error` means that the command did not work. At the end of its input the
process ends. While it waits for a command it sleeps in `read`.

Two other ways to start it: `probe` tells what this Python has, `first-step MODEL` trains one step
as a new process does and prints the loss.
"""

import gc
import itertools
import json
import os
import sys
import time
import traceback

from models import Training
from rows import ROWS

clock = time.perf_counter


def serve():
    """Answers commands until the input ends."""
    # Libraries may print; only answers belong on the pipe.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    running = {}
    for line in sys.stdin:
        try:
            answer = obey(json.loads(line), running)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def obey(command, running):
    row = command["row"]
    match command["do"]:
        case "prepare":
            running[row] = ROWS[row](**command.get("with", {}))
            return next(running[row])
        case "block":
            return running[row].send(command["seconds"])
        case "drop":
            running.pop(row).close()
            gc.collect()
            return {}
        case other:
            raise ValueError(f"`{other}` is not a command")


def first_step(model):
    """From nothing to the first loss, and where the time went."""
    marks = [("start", clock())]

    def mark(name):
        marks.append((name, clock()))

    import jax

    mark("import_jax")
    import flax.linen  # noqa: F401
    import optax  # noqa: F401

    mark("import_flax_optax")
    jax.devices()
    mark("client")
    training = Training(model)
    jax.block_until_ready(training.state)
    mark("init")
    loss = float(training.advance(1))
    print(f"loss {loss:.6f}", flush=True)
    mark("first_step")
    split = {name: end - before for (_, before), (name, end) in itertools.pairwise(marks)}
    print(json.dumps(split), flush=True)


def probe():
    """What this Python has, for the bench to check and to report."""
    import importlib.metadata
    import platform
    import sysconfig

    found = {"python": platform.python_version(), "versions": {}, "missing": []}
    for name in ("jax", "jaxlib", "flax", "optax", "numpy", "xla-cpu-pjrt"):
        try:
            found["versions"][name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found["missing"].append(name)
    found["site_packages"] = sorted({sysconfig.get_path(p) for p in ("purelib", "platlib")})
    print(json.dumps(found))


def main():
    match sys.argv[1:]:
        case ["serve"]:
            serve()
        case ["first-step", model]:
            first_step(model)
        case ["probe"]:
            probe()
        case _:
            sys.exit("this script belongs to `salus bench`")


if __name__ == "__main__":
    main()
