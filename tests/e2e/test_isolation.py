"""What one array, program or job leaves behind must not reach another."""

import pytest

from harness import SCRIPTS, Job, python, run, wait_for

PRODUCTS = SCRIPTS / "isolation" / "products.py"
RESIDUE = SCRIPTS / "isolation" / "residue.py"


def is_right(job: Job) -> None:
    assert job.result().ok().stdout == "ready\nnone wrong\n", job.result().text()


def test_products_are_right_in_one_job_after_another(daemon, sandbox):
    for seed in range(3):
        result = run(sandbox, python(PRODUCTS, seed, 8), sandbox.salus(daemon.socket)).ok()
        assert result.stdout == "ready\nnone wrong\n", f"job {seed}"


@pytest.mark.parametrize("policy", ["fair", "pack"])
def test_products_are_right_in_jobs_side_by_side(make_daemon, sandbox, tested_device, policy):
    # A GPU has one lane.
    lanes = ["--lanes", 2] if tested_device == "cpu" else []
    daemon = make_daemon(options=["--policy", policy, *lanes])
    env = sandbox.salus(daemon.socket)
    jobs = [Job(sandbox, python(PRODUCTS, seed, 8), env) for seed in range(3)]
    for job in jobs:
        is_right(job)


def test_products_are_right_while_arrays_are_paged(make_daemon, sandbox):
    # A job holds up to five matrices of 4 MiB: no two fit together.
    daemon = make_daemon(options=["--memory", "26MiB"])
    env = sandbox.salus(daemon.socket)
    jobs = [Job(sandbox, python(PRODUCTS, seed, 8), env) for seed in range(3)]

    def paged():
        return any(s["moves"]["out_bytes"] for s in daemon.sessions())

    wait_for(paged, "arrays are paged out: else this shows nothing")
    for job in jobs:
        is_right(job)


@pytest.mark.on_cpu("`jax.lax.empty` is for services of one user elsewhere, and is not cleared")
def test_nothing_is_left_in_memory_that_others_used(make_daemon, sandbox):
    # Each of the two holds 16 MiB: the one that comes second has the other paged out.
    daemon = make_daemon(options=["--memory", "26MiB"])
    env = sandbox.salus(daemon.socket)
    jobs = []
    for _ in range(2):
        jobs.append(Job(sandbox, python(RESIDUE, "leave"), env))
        jobs[-1].wait_for_line("ready")
    moves = [session["moves"] for session in daemon.sessions()]
    assert any(move["out_bytes"] for move in moves), "arrays are paged out: else this shows nothing"
    for job in jobs:
        job.kill()
    wait_for(lambda: not daemon.sessions(), "both are gone")
    looked = run(sandbox, python(RESIDUE, "look"), env).ok()
    assert looked.stdout == "0 words of another job\n"


def test_a_program_that_is_loaded_is_not_loaded_again(daemon, sandbox):
    def counts():
        cache = daemon.ps()["device"]["cache"]
        return cache["compiled"] + cache["found_on_disk"], cache["found_loaded"]

    run(sandbox, python(PRODUCTS, 0, 1), sandbox.salus(daemon.socket)).ok()
    loads, found = counts()
    assert found == 0 and loads > 0
    run(sandbox, python(PRODUCTS, 1, 1), sandbox.salus(daemon.socket)).ok()
    assert counts() == (loads, found + loads), "the second job's programs were loaded already"
