"""Host memory beside a device that has its own, on the stand-in for CUDA (`crates/standin`)."""

import re

import standin

from harness import DEADLINE_SECONDS, SCRIPTS, Job, python, run, wait_for

HOLDER = SCRIPTS / "memory" / "holder.py"
OFFLOAD = SCRIPTS / "accelerator" / "offload.py"
WEIGHTS = SCRIPTS / "accelerator" / "weights.py"
MIB = 1 << 20


def shared_bytes(pid: int) -> int:
    """Memory of pages, and of segments that jobs share with the process."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return 1024 * int(re.search(r"RssShmem:\s+(\d+) kB", status.read())[1])


def ledger(daemon) -> dict:
    return daemon.ps()["device"]["ledger"]


def until_they_end(daemon, jobs) -> list[dict]:
    """The ledger, and what is shared, again and again until the jobs have ended."""
    host = daemon.ps()["service"]["device_host_pid"]
    seen = []

    def all_ended():
        seen.append(ledger(daemon) | {"shared_bytes": shared_bytes(host)})
        return all(job.process.poll() is not None for job in jobs)

    wait_for(all_ended, "the jobs end", DEADLINE_SECONDS)
    return seen


def most(seen: list[dict], what: str) -> int:
    return max(now[what] for now in seen)


def test_pinned_host_arrays_are_charged_to_the_host(make_standin, sandbox):
    """100 MiB of them on a device that shares 64."""
    budget = 240 * MIB
    options = ["--memory", "64MiB", "--host-memory", str(budget)]
    daemon, _ = make_standin(memory="128MiB", options=options)
    job = Job(sandbox, python(OFFLOAD, "--mib", 100), sandbox.salus(daemon.socket))
    seen = until_they_end(daemon, [job])
    assert job.result().ok().stdout == "right\n"
    assert most(seen, "host_bytes") >= 80 * MIB, "else this shows nothing"
    assert most(seen, "host_used_bytes") <= budget
    report = daemon.ps()["device"]
    assert report["peak_bytes"] <= 64 * MIB
    wait_for(lambda: ledger(daemon)["host_bytes"] == 0, "all of it is given back")


def test_more_than_the_host_may_have_is_refused_with_the_numbers(make_standin, sandbox):
    options = ["--memory", "64MiB", "--host-memory", "60MiB"]
    daemon, _ = make_standin(memory="128MiB", options=options)
    env = sandbox.salus(daemon.socket)
    refused = run(sandbox, python(OFFLOAD, "--mib", 100), env).failed_with_exception()
    assert "RESOURCE_EXHAUSTED" in refused.stderr, refused.text()
    needs = r"`offload.py` needs 5\.00 MiB more in host memory, and 0 B of the 60\.00 MiB"
    assert re.search(needs, refused.stderr), refused.text()
    run(sandbox, python(OFFLOAD, "--mib", 20), env).ok()


def test_host_memory_stays_within_its_budget_while_jobs_page(make_standin, sandbox):
    options = ("--mib", 40, "--scratch-mib", 20, "--steps", 12)
    alone = [
        run(sandbox, python(HOLDER, "--seed", seed, *options), sandbox.direct()).ok().stdout
        for seed in range(3)
    ]
    budget, pinned = 240 * MIB, 64 * MIB
    config = f"schema_version = 1\n[device]\npinned_memory = {pinned}\n"
    served = ["--memory", "128MiB", "--host-memory", str(budget)]
    daemon, state = make_standin(memory="192MiB", options=served, config=config)
    env = sandbox.salus(daemon.socket)
    jobs = [Job(sandbox, python(HOLDER, "--seed", n % 3, *options), env) for n in range(6)]
    seen = until_they_end(daemon, jobs)
    for n, job in enumerate(jobs):
        assert job.result().ok().stdout == alone[n % 3], f"job {n}"
    assert most(seen, "paged_bytes") > 80 * MIB, "else this shows nothing"
    used, shared = most(seen, "host_used_bytes"), most(seen, "shared_bytes")
    assert used <= budget, f"{used / MIB} MiB"
    assert most(seen, "pinned_bytes") <= pinned
    # Jobs read their arrays at the end into segments, of 5 MiB each.
    assert shared <= budget + 80 * MIB, f"{shared / MIB} MiB"
    # What was registered is within its limit, and all of it is unregistered while it is mapped.
    assert 0 < state.device(standin.DMA_BYTES_MOST) <= pinned
    wait_for(lambda: not daemon.sessions(), "all are gone")
    daemon.stop()
    assert state.device(standin.DMA_FAULTS) == 0


def test_nothing_is_pinned_where_that_is_said(make_standin, sandbox):
    config = "schema_version = 1\n[device]\npinned_memory = 0\n"
    daemon, state = make_standin(memory="128MiB", config=config)
    env = sandbox.salus(daemon.socket)
    run(sandbox, python(OFFLOAD, "--mib", 40), env).ok()
    assert state.device(standin.DMA_MAPS) == 0


def test_a_plugin_without_registration_pages_as_well(make_standin, sandbox):
    options = ("--mib", 40, "--scratch-mib", 20, "--steps", 6)
    daemon, state = make_standin(memory="128MiB", dma=0)
    env = sandbox.salus(daemon.socket)
    jobs = [Job(sandbox, python(HOLDER, "--seed", 0, *options), env) for _ in range(3)]
    first = jobs[0].result().ok().stdout
    for job in jobs[1:]:
        assert job.result().ok().stdout == first
    assert state.device(standin.DMA_MAPS) == 0


def test_weights_are_copied_to_the_host_once(make_standin, sandbox):
    until = sandbox.directory / "enough"
    options = ("--mib", 40, "--until", until)
    count, weights = 3, 40 * MIB
    served = ["--memory", "100MiB", "--host-memory", "240MiB"]
    daemon, _ = make_standin(memory="192MiB", options=served)
    env = sandbox.salus(daemon.socket)
    jobs = [Job(sandbox, python(WEIGHTS, "--seed", 0, *options), env) for _ in range(count)]
    for job in jobs:
        job.wait_for_line("ready")

    def moved(what: str) -> int:
        return sum(session["moves"][what] for session in daemon.sessions())

    turns = "they take turns"
    wait_for(lambda: moved("out_bytes") >= 6 * weights, turns, seconds=240)
    out, copied = moved("out_bytes"), moved("copied_bytes")
    wait_for(lambda: moved("out_bytes") >= out + 6 * weights, turns, seconds=240)
    # Answers are, which are small; at most one of them was not paged out before.
    assert moved("copied_bytes") - copied < 2 * weights
    until.touch()
    outputs = {job.result().ok().stdout for job in jobs}
    assert len(outputs) == 1
    until_alone = ("--mib", 40, "--until", until)
    alone = run(sandbox, python(WEIGHTS, "--seed", 0, *until_alone), sandbox.direct()).ok()
    assert outputs == {alone.stdout}
