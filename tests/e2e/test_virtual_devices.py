"""Virtual devices, which a session does not have: said once, in one line, and the job goes on."""

import pytest

from harness import SCRIPTS, python, run

FIRST_USE = SCRIPTS / "bad" / "first_use.py"
EIGHT = "--xla_force_host_platform_device_count=8"


def stderr_of(sandbox, env):
    result = run(sandbox, python(FIRST_USE), env).ok()
    assert "RAN" in result.stdout, result.text()
    return result.stderr


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        ({"XLA_FLAGS": f"--xla_cpu_enable_fast_math=false {EIGHT}"}, f"XLA_FLAGS={EIGHT}"),
        ({"JAX_NUM_CPU_DEVICES": "8"}, "jax_num_cpu_devices=8"),
    ],
)
def test_one_line_says_that_there_is_one_device(shared_daemon, sandbox, setting, shown):
    said = stderr_of(sandbox, sandbox.salus(shared_daemon.socket) | setting)
    assert said == (
        f"salus: `{shown}` asks for 8 devices, and a job of Salus has one: the setting only "
        'changes JAX\'s own CPU backend (`jax.devices("cpu")`); to use virtual devices, run the '
        "script without Salus, with JAX_PLATFORMS=cpu\n"
    )


def test_nothing_is_said_where_one_device_is_asked_for_or_salus_is_not_used(shared_daemon, sandbox):
    one = {"XLA_FLAGS": f"{EIGHT} --xla_force_host_platform_device_count=1"}
    assert stderr_of(sandbox, sandbox.salus(shared_daemon.socket) | one) == ""
    plain = sandbox.environment(JAX_PLATFORMS="cpu", XLA_FLAGS=EIGHT)
    assert "salus" not in stderr_of(sandbox, plain)
