"""Linear algebra on a device that says `cuda`: by the handlers of the vendor's package, which a
Python loads into the service's processes, and without such a package in plain operations. And
kernels of jobs, which run where all jobs are of one user."""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import jaxlib
import pytest
import standin

from harness import SCRIPTS, descendants, python, run, vendor_plugin

SCRIPT = SCRIPTS / "vendor" / "linalg.py"
HANDLERS = SCRIPTS / "vendor" / "handlers"
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def installed(sandbox):
    """An environment with CUDA's plugin, which is the stand-in; its directory of packages."""
    site = sandbox.directory / "env" / "lib" / VERSION / "site-packages"
    plugin = site / "jax_plugins" / "xla_cuda12" / "xla_cuda_plugin.so"
    plugin.parent.mkdir(parents=True)
    plugin.symlink_to(standin.library())
    (sandbox.directory / "env" / "bin").mkdir()
    (sandbox.directory / "env" / "bin" / VERSION).symlink_to(Path(sys.executable).resolve())
    return site


def install_handlers(site, broken=False):
    package = site / "jax_cuda12_plugin"
    shutil.copytree(HANDLERS / "jax_cuda12_plugin", package)
    if broken:
        return
    include = [vendor_plugin().parent / "include", Path(jaxlib.__file__).parent / "include"]
    command = ["cc", "-shared", "-fPIC", "-O1", *(f"-I{one}" for one in include)]
    command += ["-o", package / "handlers.so", HANDLERS / "handlers.c", "-lm"]
    subprocess.run(command, check=True)


def serve(make_daemon, sandbox, site, **options):
    places = f"{site}:{sysconfig.get_path('purelib')}"
    env = standin.environment(sandbox) | {"SALUS_SITE_PACKAGES": places}
    return make_daemon(device="cuda", env=env, **options)


def said(sandbox, daemon):
    result = run(sandbox, python(SCRIPT), sandbox.salus(daemon.socket)).ok()
    return result.stdout.splitlines()


def test_programs_call_the_vendors_handlers(make_daemon, installed, sandbox):
    install_handlers(installed)
    daemon = serve(make_daemon, sandbox, installed)
    assert said(sandbox, daemon) == [
        "platform gpu",
        "linalg vendor",
        "calls cusolver_potrf_ffi",
        "cholesky True",
    ]
    assert "plain" not in daemon.log_text()


PLAIN = [
    "platform gpu",
    "linalg plain",
    "calls",
    "cholesky True",
    "solve True",
    "qr True",
    "eigh True",
    "svd True",
    "det True",
]


def test_without_the_package_it_is_done_in_plain_operations(make_daemon, installed, sandbox):
    daemon = serve(make_daemon, sandbox, installed)
    assert said(sandbox, daemon) == PLAIN
    assert "pip install jax-cuda12-plugin" in daemon.log_text()


def test_a_package_that_cannot_be_loaded_is_done_without(make_daemon, installed, sandbox):
    install_handlers(installed, broken=True)
    daemon = serve(make_daemon, sandbox, installed)
    assert said(sandbox, daemon) == PLAIN
    assert "no handlers of `jax_cuda12_plugin`: OSError" in daemon.log_text()


def test_what_died_is_started_again_with_its_handlers(make_daemon, installed, sandbox):
    install_handlers(installed)
    daemon = serve(make_daemon, sandbox, installed)
    before = said(sandbox, daemon)
    (host,) = (
        pid
        for pid in descendants(daemon.process.pid)
        if Path(f"/proc/{pid}/comm").read_text() == "salus-device\n"
    )
    os.kill(host, signal.SIGKILL)
    assert said(sandbox, daemon) == before


KERNELS = """
import jax, jax.numpy as jnp
shape = jax.ShapeDtypeStruct((4,), jnp.float32)
for name, target in {"kernel": "mosaic_gpu_v2", "empty": "AllocateBuffer"}.items():
    call = jax.jit(lambda x: jax.ffi.ffi_call(target, shape)() + x)
    try:
        print(name, call(2.0).tolist())
    except jax.errors.JaxRuntimeError as error:
        print(name, *str(error).splitlines())
"""
RUN = ["kernel [2.0, 2.0, 2.0, 2.0]", "empty [2.0, 2.0, 2.0, 2.0]"]


def test_kernels_run_only_where_all_jobs_are_of_one_user_or_the_operator_allows_them(
    make_daemon, installed, sandbox
):
    install_handlers(installed)

    def kernels(service):
        config = f"schema_version = 1\n[service]\n{service}\n"
        daemon = serve(make_daemon, sandbox, installed, config=config)
        env = sandbox.salus(daemon.socket)
        said = run(sandbox, [sys.executable, "-c", KERNELS], env).ok().stdout.splitlines()
        daemon.stop()
        return said

    assert kernels("") == RUN
    # What the service of one user has compiled is on disk, and is refused nevertheless.
    kernel, empty = kernels('allow_users = "all"')
    for said, part in ((kernel, "a kernel of the job's own"), (empty, "memory as it is found")):
        assert "PERMISSION_DENIED" in said and part in said, said
        assert "several users" in said and "allow_raw_kernels" in said, said
    assert kernels('allow_users = "all"\nallow_raw_kernels = true') == RUN
