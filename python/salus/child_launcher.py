"""Is a device host or a compiler of a service, with the vendor's handlers for linear algebra.

JAX lowers `jnp.linalg` on GPUs to custom calls. What they call is in extension modules of the
vendor's package for JAX (`jax_cuda12_plugin`), which only a Python can load. This one hands each
handler to the plugin by the package's own functions, as JAX does in its own process. The plugin
that is loaded here is the one that the service then uses: a process loads a library once.

`salus serve` starts this file by the Python that the package belongs to, without that Python's
start-up files (`crates/daemon/src/supervisor/children/python.rs`). Whatever fails here, the process
goes on without handlers, and the service tells its jobs to do without.

Not here: handlers that call Python functions. Those are of jobs, and none runs in a service.
"""

import ctypes
import importlib
import json
import os
import sys

# Environment variables, by the names that `crates/wire/src/env.rs` gives them.
CHILD_SETTINGS = "SALUS_CHILD_SETTINGS"
CHILD_HANDLERS = "SALUS_CHILD_HANDLERS"

ROLES = {"device-host": 0, "compiler": 1}

MODULES = ("_solver", "_linalg", "_hybrid", "_sparse", "_prng", "_rnn", "_triton")

# Modules of which every handler is of the typed interface; in others, the name says it.
TYPED = ("_linalg", "_hybrid", "_triton")


def main(role: str, library: str, version: str, site_packages: str, package: str) -> None:
    child = ctypes.CDLL(library)
    child.salus_child_version.restype = ctypes.c_char_p
    found = child.salus_child_version().decode()
    if found != version:
        say(f"`{library}` is of version {found}, and the service of {version}: start it again")
        os._exit(1)
    registered = 0
    try:
        sys.path.insert(0, site_packages)
        plugin = json.loads(os.environ[CHILD_SETTINGS])["plugin"]
        registered = register(package, plugin)
    except Exception as error:
        say(f"no handlers of `{package}`: {type(error).__name__}: {error}")
    os.environ[CHILD_HANDLERS] = str(registered)
    # Nothing of Python has to be put away, and threads of the plugin may still run.
    os._exit(child.salus_child_main(ROLES[role]))


def register(package: str, plugin: str) -> int:
    """Registers the package's handlers with the plugin, and returns how many."""
    # NumPy, which the package may import, would start a thread for each core.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    kind = "rocm" if "rocm" in package else "cuda"
    extension = importlib.import_module(f"{package}.{kind}_plugin_extension")
    api = api_of(plugin)
    platform = kind.upper()
    registered = 0
    for name in MODULES:
        try:
            module = importlib.import_module(f"{package}.{name}")
        except ImportError:
            continue  # older packages have fewer
        for target, handler in module.registrations().items():
            typed = name in TYPED or target.endswith("_ffi")
            extension.register_custom_call_target(api, target, handler, platform, int(typed), 0)
            registered += 1
    return registered


def api_of(plugin: str):
    """The plugin's table of functions, as the package's own functions take it."""
    library = ctypes.CDLL(plugin)
    library.GetPjrtApi.restype = ctypes.c_void_p
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    capsule.restype = ctypes.py_object
    return capsule(library.GetPjrtApi(), b"pjrt_c_api", None)


def say(text: str) -> None:
    print(f"salus: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
