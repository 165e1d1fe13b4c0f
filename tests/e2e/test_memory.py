"""Many jobs on a device that could not hold them side by side."""

import re
import time

import pytest

from harness import SCRIPTS, Job, python, run, wait_for

HOLDER = SCRIPTS / "memory" / "holder.py"
GROWER = SCRIPTS / "memory" / "grower.py"
MIB = 1 << 20


def holders(sandbox, daemon, count, *options):
    """`count` jobs at once, three of each seed's kind."""
    env = sandbox.salus(daemon.socket)
    return [Job(sandbox, python(HOLDER, "--seed", n % 3, *options), env) for n in range(count)]


def expected(sandbox, run_direct_env, *options):
    """What each seed prints without Salus."""
    jobs = [
        Job(sandbox, python(HOLDER, "--seed", seed, *options), run_direct_env) for seed in range(3)
    ]
    return [job.result().ok().stdout for job in jobs]


def anonymous_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return 1024 * int(re.search(r"RssAnon:\s+(\d+) kB", status.read())[1])


def test_twelve_jobs_where_static_partitions_hold_three(make_daemon, sandbox, tested_device):
    options = ("--mib", 60, "--scratch-mib", 300, "--steps", 3)
    alone = expected(sandbox, sandbox.direct(), *options)
    budget = int(1.3 * 1024) * MIB
    daemon = make_daemon(options=["--memory", "1.3GiB"])
    host = daemon.ps()["service"]["device_host_pid"]
    before = anonymous_bytes(host)
    jobs = holders(sandbox, daemon, 12, *options)
    most = 0
    while any(job.process.poll() is None for job in jobs):
        most = max(most, anonymous_bytes(host) - before)
        time.sleep(0.01)
    for n, job in enumerate(jobs):
        assert job.result().ok().stdout == alone[n % 3], f"job {n}"
    report = daemon.ps()["device"]
    assert 300 * MIB < report["peak_bytes"] <= budget
    assert report["resident_bytes"] == report["paged_bytes"] == 0
    if tested_device == "cpu":
        # Elsewhere pages are memory beside the device's, which is the stand-in's process, too.
        assert most <= 1.15 * (budget + 300 * MIB), most


def test_jobs_that_do_not_fit_together_all_finish(make_daemon, sandbox):
    options = ("--mib", 40, "--scratch-mib", 40, "--steps", 12)
    alone = expected(sandbox, sandbox.direct(), *options)
    budget = 128 * MIB
    daemon = make_daemon(options=["--memory", str(budget)])
    jobs = holders(sandbox, daemon, 8, *options)
    paged = 0
    while any(job.process.poll() is None for job in jobs):
        paged = max(paged, daemon.ps()["device"]["paged_bytes"])
    for n, job in enumerate(jobs):
        assert job.result().ok().stdout == alone[n % 3], f"job {n}"
    report = daemon.ps()["device"]
    assert report["peak_bytes"] <= budget
    assert report["resident_bytes"] == report["paged_bytes"] == 0
    assert paged > 0, "320 MiB do not fit 128 MiB"


def test_the_same_bits_where_what_jobs_give_is_copied(make_daemon, sandbox):
    """A service for several users keeps no array in memory that a job can write."""
    options = ("--mib", 40, "--scratch-mib", 40, "--steps", 6)
    alone = expected(sandbox, sandbox.direct(), *options)
    config = 'schema_version = 1\n[service]\nallow_users = "all"\n'
    daemon = make_daemon(config=config, options=["--memory", "128MiB"])
    jobs = holders(sandbox, daemon, 4, *options)
    for n, job in enumerate(jobs):
        assert job.result().ok().stdout == alone[n % 3], f"job {n}"
    report = daemon.ps()
    assert report["device"]["peak_bytes"] <= 128 * MIB
    assert report["device"]["resident_bytes"] == report["device"]["paged_bytes"] == 0
    limits = report["service"]["limits"]
    assert 2 * limits["sessions_per_user"] <= limits["sessions"], "one user cannot have them all"


@pytest.mark.on_cpu("a GPU has one lane")
def test_two_lanes_give_the_same_bits(make_daemon, sandbox):
    options = ("--mib", 20, "--scratch-mib", 20, "--steps", 20)
    alone = expected(sandbox, sandbox.direct(), *options)
    daemon = make_daemon(options=["--memory", "120MiB", "--lanes", "2"])
    jobs = holders(sandbox, daemon, 6, *options)
    for n, job in enumerate(jobs):
        assert job.result().ok().stdout == alone[n % 3], f"job {n}"
    assert daemon.ps()["device"]["peak_bytes"] <= 120 * MIB


def test_a_device_too_small_for_a_job_says_so(make_daemon, sandbox):
    daemon = make_daemon(options=["--memory", "128MiB"])
    env = sandbox.salus(daemon.socket)
    other = Job(sandbox, python(HOLDER, "--mib", 20, "--scratch-mib", 20, "--steps", 40), env)
    other.wait_for_line("ready")
    large = run(sandbox, python(HOLDER, "--mib", 60, "--scratch-mib", 200), env)
    large.failed_with_exception()
    assert "RESOURCE_EXHAUSTED" in large.stderr
    needs = r"`jit_\w+` of `holder.py` needs at least 26\d\.\d\d MiB at once"
    assert re.search(needs, large.stderr), large.stderr
    assert "the device has 124.00 MiB to share: it can never run here" in large.stderr
    other.result().ok()


def test_a_limit_is_the_jobs_own_and_can_be_raised(make_daemon, sandbox, salus_bin):
    daemon = make_daemon(options=["--memory", "400MiB"])
    env = {**sandbox.salus(daemon.socket), "SALUS_SOCKET": str(daemon.socket)}
    command = [salus_bin, "run", "--name", "grower", "--memory-max", "90MiB", "--"]
    job = Job(sandbox, [*command, *python(GROWER)], env)
    job.wait_for_line("refused")
    assert "limit 94371840" in job.stdout
    assert "`grower` would hold 100.00 MiB, and its limit is 90.00 MiB" in job.stdout
    daemon.command("job", "grower", "memory-max", "200MiB").ok()
    job.result().ok()
    assert "limit 209715200" in job.stdout


def test_explain_says_why_a_job_waits(make_daemon, sandbox):
    daemon = make_daemon(options=["--memory", "128MiB"])
    jobs = holders(sandbox, daemon, 4, "--mib", 40, "--scratch-mib", 40, "--steps", 400)

    def reasons():
        texts = [daemon.command("explain", str(s["id"])) for s in daemon.sessions()]
        return "\n".join(text.stdout for text in texts)

    wait_for(lambda: "it waits for memory: it needs" in reasons(), "somebody waits for memory")
    assert daemon.command("explain", "nobody").code == 1
    for job in jobs:
        job.kill()
    wait_for(lambda: not daemon.sessions(), "all are gone")
    report = daemon.ps()["device"]
    assert report["resident_bytes"] == report["paged_bytes"] == 0
