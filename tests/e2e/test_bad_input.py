"""Bad input: a clear error that says what to do; no hang, no abort, never silently plain CPU."""

import ctypes
import os
import shutil
import socket
import struct
import subprocess

import pytest

import wire
from harness import (
    SCRIPTS,
    Daemon,
    Job,
    python,
    run,
    salus_library,
    vendor_plugin,
)

FIRST_USE = SCRIPTS / "bad" / "first_use.py"


def first_use(sandbox, **env):
    return run(sandbox, python(FIRST_USE), sandbox.environment(**env))


def assert_refused(result, *texts):
    result.failed_with_exception()
    assert "RAN" not in result.stdout, result.text()
    for text in texts:
        assert text in result.stderr, f"`{text}` is missing\n{result.text()}"


# ---------------------------------------------------------------- the daemon


def test_no_daemon(sandbox):
    missing = sandbox.directory / "missing.sock"
    result = first_use(sandbox, JAX_PLATFORMS="salus,cpu", SALUS_SOCKET=str(missing))
    assert_refused(result, str(missing), "salus serve")


def test_no_daemon_and_no_socket_named(sandbox):
    assert_refused(first_use(sandbox, JAX_PLATFORMS="salus,cpu"), "salus run")


def test_socket_named_but_not_the_platform(sandbox):
    # JAX would fall back to its CPU here if Salus were registered as optional.
    missing = sandbox.directory / "missing.sock"
    assert_refused(first_use(sandbox, SALUS_SOCKET=str(missing)), str(missing))


def test_stale_socket(sandbox):
    path = sandbox.directory / "stale.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    result = first_use(sandbox, JAX_PLATFORMS="salus,cpu", SALUS_SOCKET=str(path))
    assert_refused(result, str(path), "salus serve")


def test_library_missing(sandbox):
    result = first_use(sandbox, SALUS_SOCKET="/x", SALUS_LIBRARY="/no/libpjrt_salus.so")
    assert_refused(result, "/no/libpjrt_salus.so", "SALUS_LIBRARY")


def test_one_of_several_processes(daemon, sandbox):
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    script, env = SCRIPTS / "bad" / "of_several.py", sandbox.salus(daemon.socket)
    for job in [Job(sandbox, python(script, port, index), env) for index in (0, 1)]:
        assert_refused(job.result(), "2 processes", "has one process and one device")


def test_daemon_of_another_version(daemon, sandbox):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(daemon.socket))
        client.sendall(wire.hello(900, 901))
        kind, body = wire.receive(client)
    assert kind == wire.REFUSED
    _, message = wire.refusal(body)
    assert "900" in message and "901" in message and "1" in message, message

    # The same words reach a job whose library is the older one.
    path = sandbox.directory / "newer.sock"

    def refuse(connection):
        wire.receive(connection)
        connection.sendall(wire.frame(wire.REFUSED, body))

    with wire.listening(path, refuse):
        result = first_use(sandbox, JAX_PLATFORMS="salus,cpu", SALUS_SOCKET=str(path))
    assert_refused(result, "900", "901")


@pytest.mark.parametrize(
    "answer",
    [
        lambda connection: connection.close(),
        lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10),
        lambda connection: connection.sendall(wire.frame(wire.WELCOME, b"\xff" * 100)),
        lambda connection: connection.sendall(struct.pack("<IHH", 0xFFFFFFFF, 1, 0)),
        lambda connection: None,
    ],
    ids=["closes", "speaks http", "sends garbage", "announces 4 GiB", "says nothing"],
)
def test_something_else_listens(sandbox, answer):
    path = sandbox.directory / "other.sock"
    with wire.listening(path, answer):
        result = first_use(sandbox, JAX_PLATFORMS="salus,cpu", SALUS_SOCKET=str(path))
    assert_refused(result, str(path))


def without_privileges():
    """Root ignores the modes of files; a process without these two capabilities does not."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            assert libc.prctl(24, capability, 0, 0, 0) == 0  # PR_CAPBSET_DROP


def test_socket_without_permission(daemon, sandbox):
    daemon.socket.chmod(0)
    env = sandbox.salus(daemon.socket)
    result = run(sandbox, python(FIRST_USE), env, preexec_fn=without_privileges)
    daemon.socket.chmod(0o600)
    assert_refused(result, str(daemon.socket), "ermission")
    first_use(sandbox, JAX_PLATFORMS="salus,cpu", SALUS_SOCKET=str(daemon.socket)).ok()


def test_garbage_on_the_socket_harms_nobody(daemon, sandbox):
    for data in (b"\0" * 64, b"\xff" * 4096, wire.frame(7, b"\x01" * 32), wire.hello(1, 1)[:-1]):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(daemon.socket))
            client.sendall(data)
    run(sandbox, python(FIRST_USE), sandbox.salus(daemon.socket)).ok()


@pytest.mark.parametrize("mode", ["steps", "dispatch", "wait", "compile", "transfer"])
def test_daemon_killed_in_mid_run(daemon, sandbox, mode):
    command = python(SCRIPTS / "bad" / "victim.py", mode)
    job = Job(sandbox, command, sandbox.salus(daemon.socket))
    job.wait_for_line("ready")
    daemon.kill()
    result = job.result(seconds=60.0).failed_with_exception()
    assert "salus" in result.stderr.lower(), result.text()


# ---------------------------------------------------------------- the device


def serve(sandbox, salus_bin, *args, **env):
    socket_path = sandbox.directory / "salus.sock"
    command = [salus_bin, "serve", "--socket", socket_path, *args]
    result = run(sandbox, command, sandbox.environment(**env))
    assert result.code not in (0, 101, 134), result.text()
    assert "panicked" not in result.stderr, result.text()
    assert not socket_path.exists(), "a socket was left behind"
    return result


def test_plugin_missing(sandbox, salus_bin):
    path = sandbox.directory / "no" / "plugin.so"
    result = serve(sandbox, salus_bin, "--device", path)
    assert str(path) in result.stderr, result.text()


def test_plugin_package_missing(sandbox, salus_bin):
    result = serve(sandbox, salus_bin, "--device", "rocm")
    assert "rocm" in result.stderr and "hint:" in result.stderr, result.text()


def test_plugin_is_no_plugin(sandbox, salus_bin):
    path = sandbox.directory / "plugin.so"
    path.write_text("this is not a library")
    result = serve(sandbox, salus_bin, "--device", path)
    assert str(path) in result.stderr, result.text()


def test_plugin_that_cannot_create_a_client(sandbox, salus_bin):
    library = sandbox.directory / "no_gpu.so"
    include = vendor_plugin().parent / "include"
    source = SCRIPTS / "bad" / "no_gpu.c"
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{include}", "-o", library, source], check=True)
    result = serve(sandbox, salus_bin, "--device", library)
    assert "No visible GPU devices." in result.stderr, result.text()
    assert str(library) in result.stderr, result.text()


# ---------------------------------------------------------------- programs and arrays


def test_wrong_claims(daemon, sandbox):
    foreign = sandbox.directory / "foreign.bin"
    serialize = python(SCRIPTS / "bad" / "serialize.py", vendor_plugin(), foreign)
    run(sandbox, serialize, sandbox.environment()).ok()

    claims = python(SCRIPTS / "bad" / "claims.py", salus_library(), foreign)
    result = run(sandbox, claims, sandbox.salus(daemon.socket)).ok()
    lines = result.stdout.strip().splitlines()
    assert lines[-1] == "still works| [0.0, 2.0, 4.0, 6.0]", result.text()
    found = {name: claim for name, *claim in (line.split("|", 2) for line in lines[:-1])}

    assert all(kind != "accepted" for kind, _ in found.values()), found
    assert all(len(message) > 20 for _, message in found.values()), found
    for name in ("too few arguments", "too many arguments", "another shape"):
        assert found[name][0] == "InvalidArgument", found[name]
    assert found["another type of the same size"][0] == "InvalidArgument", found
    assert "2" in found["too few arguments"][1] and "1" in found["too few arguments"][1]
    for name in ("reading a deleted array", "running on a deleted array"):
        assert "deleted" in found[name][1], found[name]
    assert "not made by Salus" in found["foreign executable"][1], found
    assert len(found) == 14


def test_errors_in_jax(daemon, sandbox):
    command = python(SCRIPTS / "bad" / "jax_errors.py")
    result = run(sandbox, command, sandbox.salus(daemon.socket)).ok()
    assert result.stdout.endswith("DONE\n"), result.text()


def test_compile_options_write_no_files(daemon, sandbox):
    script = SCRIPTS / "bad" / "dump.py"
    by_flag, by_option = sandbox.directory / "by_flag", sandbox.directory / "by_option"
    flags = {"XLA_FLAGS": f"--xla_dump_to={by_flag}"}

    env = sandbox.salus(daemon.socket) | flags
    result = run(sandbox, python(script, by_option), env).ok()
    assert not by_flag.exists() and not by_option.exists(), result.text()

    # The plugin by itself does write them, so the absence above means something.
    run(sandbox, python(script, by_option), sandbox.direct() | flags).ok()
    assert by_flag.exists() and by_option.exists()


# ---------------------------------------------------------------- configuration and disk


@pytest.mark.parametrize(
    "text, line, hint",
    [
        ("schema_version = 1\n[service]\nsokcet = '/x'\n", "line 3", "`socket`"),
        ("schema_version = 1\n[devices]\nlanes = 2\n", "line 2", "`device`"),
        ("schema_version = 1\n[device]\nlanes = 'two'\n", "line 3", "lanes"),
        ("schema_version = 7\n", "line 1", "7"),
        ("[service]\n", "schema_version", "schema_version = 1"),
        ("schema_version = ", "line 1", "salus.toml"),
    ],
    ids=["key", "section", "value", "version", "no version", "not toml"],
)
def test_config_with_a_typo(sandbox, salus_bin, text, line, hint):
    config = sandbox.directory / "salus.toml"
    config.write_text(text)
    result = serve(sandbox, salus_bin, "--device", "cpu", "--config", config)
    assert result.code == 2, result.text()
    assert str(config) in result.stderr and line in result.stderr, result.text()
    assert hint in result.stderr, result.text()


def small_disk(directory):
    """A prefix for a command that sees a full file system of 64 KiB at `directory`, or None."""
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    mount = 'mount -t tmpfs -o size=64k none "$0" && exec "$@"'
    prefix = ["unshare", *user, "--mount", "sh", "-c", mount, str(directory)]
    if not shutil.which("unshare"):
        return None
    works = subprocess.run([*prefix, "true"], capture_output=True).returncode == 0
    return prefix if works else None


def test_full_disk_under_the_cache(sandbox, salus_bin, run_direct, run_salus):
    cache = sandbox.directory / "cache"
    cache.mkdir()
    prefix = small_disk(cache)
    if prefix is None:
        pytest.skip("no mount namespaces here: a full disk cannot be made")
    daemon = Daemon(sandbox, salus_bin, prefix=prefix).start()
    try:
        expected = run_direct("scan.py").ok()
        for _ in range(2):
            assert run_salus("scan.py", daemon=daemon).ok().stdout == expected.stdout
        assert str(cache) in daemon.log_text(), "the log does not say that the disk is full"
    finally:
        daemon.stop()


# ---------------------------------------------------------------- custom calls


def test_a_custom_call_that_nobody_answers_is_named_with_a_way_out(daemon, run_salus):
    ways = {
        "my_target": ("jax.ffi", "jax.default_device"),
        "lapack_nothing_ffi": ("linear algebra", "salus doctor"),
        "cusolver_getrf_ffi": ("a GPU's libraries", "jax.export"),
        "tpu_custom_call": ("Pallas", "interpret=True"),
    }
    shown = run_salus("bad/no_handler.py", *ways, daemon=daemon).ok().stdout
    *errors, last = shown.splitlines()
    assert last == "and goes on 3.0"
    assert len(errors) == 2 * len(ways)
    for line in errors:
        target, _, error = line.split(" ", 2)
        assert f"NOT_FOUND: the program calls `{target}`, and the device has no handler" in error
        what, way_out = ways[target]
        assert what in error and "hint: " in error and way_out in error, error
