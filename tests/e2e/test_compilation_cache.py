"""JAX's persistent compilation cache, whose entries are tokens of Salus."""

import re
import shutil

SCRIPT = "compilation_cache.py"


def hits_and_misses(result):
    result.ok()
    assert result.stderr == "", result.text()
    found = re.search(r"hits (\d+) misses (\d+)", result.stdout)
    return tuple(map(int, found.groups()))


def bits(result):
    return [line for line in result.stdout.splitlines() if not line.startswith("hits")]


def test_second_run_hits_also_after_a_restart(make_daemon, run_salus, run_direct, tmp_path):
    expected = bits(run_direct(SCRIPT, tmp_path / "direct").ok())
    daemon = make_daemon()

    first = run_salus(SCRIPT, tmp_path / "jax", daemon=daemon)
    hits, misses = hits_and_misses(first)
    assert hits == 0 and misses > 0
    assert bits(first) == expected

    second = run_salus(SCRIPT, tmp_path / "jax", daemon=daemon)
    assert hits_and_misses(second) == (misses, 0)
    assert bits(second) == expected

    daemon.stop()
    third = run_salus(SCRIPT, tmp_path / "jax", daemon=make_daemon())
    assert hits_and_misses(third) == (misses, 0)
    assert bits(third) == expected


def test_tokens_survive_the_loss_of_salus_own_cache(make_daemon, run_salus, sandbox, tmp_path):
    daemon = make_daemon()
    first = run_salus(SCRIPT, tmp_path / "jax", daemon=daemon)
    _, misses = hits_and_misses(first)
    daemon.stop()
    shutil.rmtree(sandbox.directory / "cache")

    again = run_salus(SCRIPT, tmp_path / "jax", daemon=make_daemon())
    # JAX would never write the entry again, so a token that failed would warn forever.
    assert hits_and_misses(again) == (misses, 0)
    assert bits(again) == bits(first)


def test_the_machine_code_of_others_is_not_in_the_entries(daemon, run_salus, tmp_path):
    run_salus(SCRIPT, tmp_path / "jax", daemon=daemon).ok()
    for entry in (tmp_path / "jax").iterdir():
        assert b"\x7fELF" not in entry.read_bytes()
