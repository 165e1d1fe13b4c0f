"""A device with memory of its own is the device host's: compilers take none of it, or very little.

On the stand-in for CUDA, which takes its pool at the first allocation, and less of it without a
word if others hold memory.
"""

import standin

from harness import SCRIPTS, Job, python

# Of `salus serve` itself, which counts the devices in a process that has ended by then.
COUNTING = 1

LARGE = SCRIPTS / "memory" / "large_array.py"
MIB = 1 << 20


def made(sandbox, daemon, mib):
    job = Job(sandbox, python(LARGE, "--mib", mib), sandbox.salus(daemon.socket))
    return job.result().ok().stdout.split("\n")[1]


def test_compilers_open_no_client_and_most_of_the_device_is_one_array(make_standin, sandbox):
    config = "schema_version = 1\n[compilers]\ntune = false\n"
    daemon, state = make_standin(memory="1GiB", config=config)
    (place,) = state.places()
    assert place[standin.PID] == daemon.ps()["service"]["device_host_pid"]
    # Nine tenths, before any job.
    assert 912 * MIB < place[standin.POOL] <= 922 * MIB
    assert daemon.ps()["device"]["capacity_bytes"] == place[standin.POOL]
    assert made(sandbox, daemon, 768) == "768 768.0"
    assert state.word(standin.CLIENTS) == COUNTING + 1
    assert state.word(standin.COMPILED) == 0
    assert state.word(standin.COMPILED_WITHOUT_CLIENT) > 1


def test_a_compiler_that_measures_has_little_and_leaves_the_rest(make_standin, sandbox):
    daemon, state = make_standin(memory="1GiB")
    assert made(sandbox, daemon, 768) == "768 768.0"
    assert state.word(standin.CLIENTS) == COUNTING + 2
    # The product is tuned, the others have nothing to measure.
    assert state.word(standin.COMPILED) == 1
    assert state.word(standin.COMPILED_WITHOUT_CLIENT) > 0
    host = daemon.ps()["service"]["device_host_pid"]
    pools = {place[standin.PID] == host: place[standin.POOL] for place in state.places()}
    assert pools[True] > 912 * MIB
    assert 0 < pools[False] <= 52 * MIB
    assert daemon.ps()["device"]["capacity_bytes"] == pools[True]


def test_where_no_second_client_can_be_opened_programs_are_compiled_without(make_standin, sandbox):
    config = "schema_version = 1\n[compilers.options]\nno_such_option = 1\n"
    daemon, state = make_standin(memory="1GiB", config=config)
    assert made(sandbox, daemon, 768) == "768 768.0"
    assert state.word(standin.COMPILED) == 0
    assert "no_such_option" in daemon.log_text()


def test_options_of_the_device_hosts_memory_are_not_its_compilers(make_standin, sandbox):
    config = "schema_version = 1\n[device.options]\nmemory_fraction = 0.8\npreallocate = true\n"
    daemon, state = make_standin(memory="1GiB", config=config)
    assert made(sandbox, daemon, 512) == "512 512.0"
    host = daemon.ps()["service"]["device_host_pid"]
    pools = {place[standin.PID] == host: place[standin.POOL] for place in state.places()}
    assert pools[True] > 800 * MIB
    assert 0 < pools[False] <= 52 * MIB


def test_where_nothing_can_be_compiled_without_a_client_compilers_have_little(
    make_standin, sandbox
):
    config = "schema_version = 1\n[compilers]\ntune = false\ncount = 1\n"
    daemon, state = make_standin(memory="1GiB", topology=0, config=config)
    assert made(sandbox, daemon, 768) == "768 768.0"
    assert "compilers open the device themselves" in daemon.log_text()
    assert state.word(standin.COMPILED) > 1
    assert state.word(standin.COMPILED_WITHOUT_CLIENT) == 0
    host = daemon.ps()["service"]["device_host_pid"]
    pools = [place[standin.POOL] for place in state.places() if place[standin.PID] != host]
    assert sum(pools) <= 102 * MIB, pools


def test_what_is_asked_for_is_what_is_taken(make_standin, sandbox):
    daemon, state = make_standin(memory="1GiB", options=["--memory", "256MiB"])
    host = daemon.ps()["service"]["device_host_pid"]
    (pool,) = [p[standin.POOL] for p in state.places() if p[standin.PID] == host]
    # A sixteenth and 256 MiB more, for gaps between arrays.
    assert 528 * MIB <= pool < 529 * MIB
    assert daemon.ps()["device"]["capacity_bytes"] == 256 * MIB
