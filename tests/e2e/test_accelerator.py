"""What a device does that is not a CPU, on the stand-in for CUDA (`crates/standin`)."""

import standin

from harness import SCRIPTS, Job, python, run, wait_for

LOOP = SCRIPTS / "policies" / "loop.py"
HOLDER = SCRIPTS / "memory" / "holder.py"
ILLEGAL = SCRIPTS / "accelerator" / "illegal.py"
OFFLOAD = SCRIPTS / "accelerator" / "offload.py"


def test_launch_calls_of_a_lane_never_overlap(make_standin, sandbox):
    # Each call takes long enough to meet others.
    daemon, state = make_standin(enqueue_us=2000)
    env = sandbox.salus(daemon.socket)
    jobs = [Job(sandbox, python(LOOP, "--steps", 60, "--size", 64), env) for _ in range(3)]
    first = jobs[0].result().ok().stdout
    for job in jobs[1:]:
        assert job.result().ok().stdout == first
    assert state.device(standin.LAUNCHES) >= 180
    assert state.device(standin.CALLS_MOST) == 1


def test_jobs_that_page_end_although_memory_runs_out_in_the_event(make_standin, sandbox):
    options = ("--mib", 40, "--scratch-mib", 40, "--steps", 12)
    alone = [
        run(sandbox, python(HOLDER, "--seed", seed, *options), sandbox.direct()).ok().stdout
        for seed in range(3)
    ]
    daemon, _ = make_standin(memory="160MiB")
    env = sandbox.salus(daemon.socket)
    jobs = [Job(sandbox, python(HOLDER, "--seed", seed, *options), env) for seed in range(3)]
    for seed, job in enumerate(jobs):
        assert job.result().ok().stdout == alone[seed], f"job {seed}"
    report = daemon.ps()["device"]
    assert report["resident_bytes"] == report["paged_bytes"] == 0


def test_an_error_that_sticks_ends_the_device_host_and_the_next_runs(make_standin, sandbox):
    daemon, state = make_standin()
    env = sandbox.salus(daemon.socket)
    host = daemon.ps()["service"]["device_host_pid"]
    broken = run(sandbox, python(ILLEGAL), env).failed_with_exception()
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in broken.stderr, broken.text()
    assert state.device(standin.STICKY) == 1

    def replaced():
        now = daemon.ps()["service"]["device_host_pid"]
        return now and now != host

    wait_for(replaced, "there is a new device host")
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in daemon.log_text()
    run(sandbox, python(LOOP, "--steps", 5), env).ok()


def test_pinned_memory_may_be_larger_than_the_device(make_standin, sandbox):
    daemon, state = make_standin(memory="96MiB")
    result = run(sandbox, python(OFFLOAD, "--mib", 100), sandbox.salus(daemon.socket)).ok()
    assert result.stdout == "right\n"
    assert state.device(standin.OUT_OF_MEMORY) == 0


def test_pinned_ranges_are_given_back_before_they_are_gone(make_standin, sandbox):
    options = ("--mib", 40, "--scratch-mib", 20, "--steps", 12)
    daemon, state = make_standin(memory="128MiB")
    env = sandbox.salus(daemon.socket)
    jobs = [Job(sandbox, python(HOLDER, "--seed", seed, *options), env) for seed in range(3)]
    for job in jobs:
        job.result().ok()
    wait_for(lambda: not daemon.sessions(), "all are gone")
    assert state.device(standin.DMA_MAPS) > 0, "pages are pinned: else this shows nothing"
    assert state.device(standin.DMA_MOVED_BYTES) > 0
    daemon.stop()
    assert state.device(standin.DMA_FAULTS) == 0
