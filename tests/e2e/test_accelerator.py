"""What a device does that is not a CPU, on the stand-in for CUDA (`crates/standin`)."""

import standin

from harness import SCRIPTS, Job, python, run, wait_for

LOOP = SCRIPTS / "policies" / "loop.py"
HOLDER = SCRIPTS / "memory" / "holder.py"
ILLEGAL = SCRIPTS / "accelerator" / "illegal.py"
OFFLOAD = SCRIPTS / "accelerator" / "offload.py"
EVALUATES = SCRIPTS / "accelerator" / "evaluates.py"
SMALL = SCRIPTS / "accelerator" / "small.py"
TRAINS = SCRIPTS / "accelerator" / "trains.py"


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


def restarts(daemon, count):
    """Waits until the device host has been started again this many times, and is there."""

    def is_back():
        report = daemon.ps()
        return report["service"]["restarts"] == count and report["device"].get("platform")

    wait_for(is_back, f"{count} restarts of the device host")


def test_a_program_after_which_the_device_fails_twice_is_refused(make_standin, sandbox):
    daemon, state = make_standin()
    env = sandbox.salus(daemon.socket)
    victim = Job(sandbox, python(TRAINS), env)
    victim.wait_for_line("ready")
    run(sandbox, python(ILLEGAL), env).failed_with_exception()
    restarts(daemon, 1)
    log = daemon.log_text()
    assert "a probe of the device failed, too" in log
    assert "while it ran the program `jit_illegal_address` of session 2" in log
    assert "which is refused if it happens again" in log
    why = victim.result().ok().stdout
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in why, why
    run(sandbox, python(ILLEGAL), env).failed_with_exception()
    restarts(daemon, 2)
    # The third time it does not run.
    refused = run(sandbox, python(ILLEGAL), env).failed_with_exception()
    assert "the program `jit_illegal_address` is refused" in refused.stderr
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in refused.stderr
    assert daemon.ps()["service"]["restarts"] == 2
    assert state.device(standin.STICKY) == 2


def test_launches_that_gave_nothing_away_run_again(make_standin, sandbox):
    """The device says nothing of its memory, and has less than the service was told."""
    options = ("--mib", 30, "--scratch-mib", 20, "--steps", 10)
    jobs = [python(EVALUATES, "--seed", seed, *options) for seed in range(3)]
    alone = [run(sandbox, job, sandbox.direct()).ok().stdout for job in jobs]
    daemon, state = make_standin(
        memory="112MiB", stats=0, options=["--memory", "192MiB", "--host-memory", "1GiB"]
    )
    env = sandbox.salus(daemon.socket)
    jobs = [Job(sandbox, job, env) for job in jobs]
    for seed, job in enumerate(jobs):
        assert job.result().ok().stdout == alone[seed], f"job {seed}"
    assert state.device(standin.OUT_OF_MEMORY) > 0


def test_lanes_that_the_device_does_not_have_are_refused(salus_bin, sandbox):
    env = sandbox.environment(**standin.environment(sandbox))
    where = ["--socket", sandbox.directory / "lanes.sock"]
    served = ["--device", standin.library(), "--lanes", "3"]
    refused = run(sandbox, [salus_bin, "serve", *where, *served], env)
    assert refused.code == 2
    assert "has 1 lane, and 3 are asked for" in refused.stderr, refused.stderr
    assert "--lanes 1" in refused.stderr


def test_packing_on_one_lane_says_so(make_standin):
    daemon, _ = make_standin()
    told = daemon.command("policy", "set", "pack").ok()
    assert "this device has one lane" in told.stdout + told.stderr
    assert "this device has one lane" in daemon.log_text()


def test_small_arrays_are_charged_what_they_take(make_standin, sandbox):
    daemon, state = make_standin()
    job = Job(sandbox, python(SMALL), sandbox.salus(daemon.socket))
    job.wait_for_line("ready")
    # The compiler that tunes has a client, too.
    host = daemon.ps()["service"]["device_host_pid"]
    (place,) = [place for place in state.places() if place[standin.PID] == host]
    charged = daemon.ps()["device"]["resident_bytes"]
    # Four bytes each, of which the allocator takes 256.
    assert place[standin.IN_USE] >= 500 * 256
    assert charged >= place[standin.IN_USE]
    job.kill()
