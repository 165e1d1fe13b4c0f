"""Registers Salus with JAX: finds the library, decides whether it is wanted, and steps aside.

JAX calls `initialize()` before it creates its first backend, in every process in which this
package is installed. So the first duty is to leave processes alone that do not want Salus:

    JAX_PLATFORMS names other platforms only      nothing happens
    JAX_PLATFORMS names `salus`                   registered; no service is an error
    SALUS_SOCKET is set                           registered; no service is an error
    neither, and a service of this user listens   registered
    neither, and none does                        nothing happens

Where a process uses Salus and has a vendor's own plugin for the device that the service serves, JAX
does not create that plugin's client: it would take the memory of the device that is shared.

Promise: a job that asked for Salus never runs silently on something else.
Cost: the library is loaded and one Unix socket connected to, and only where nothing was asked.
Not here: where sockets are looked for, the protocol, policies, the service's start (`salus run`).

This file is also what `salus run` puts on the path of a Python that has JAX but not this package
(as `jax_plugins/salus/__init__.py`), so it imports nothing from the package. Both copies may be
loaded by one process: the second finds the first one's registration.

JAX has no public door for most of this; whatever is private is guarded, so that a JAX that moved
it loses the convenience and not the job. Tested on JAX 0.6.2, 0.7.2 and 0.10.2.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import logging
import math
import os
import traceback

import jax
import ml_dtypes
import numpy as np

PLATFORM = "salus"
LIBRARY_FILE = "libpjrt_salus.so"

# The vendors' own packages take 500, and JAX's default for plugins is 400. A job that asked for
# Salus has it before all; one that did not keeps an accelerator that Salus does not serve.
PRIORITY_ASKED = 600
PRIORITY_FOUND = 450

# A service that listens accepts at once (the kernel does it for it); this bounds a stuck one.
CONNECT_MILLISECONDS = 1000

# Environment variables, by the names that `crates/wire/src/env.rs` gives them.
SOCKET = "SALUS_SOCKET"
RUN_NOTES = "SALUS_RUN_NOTES"
LIBRARY = "SALUS_LIBRARY"

logger = logging.getLogger("salus")


def initialize() -> None:
    """Called by JAX once per copy of this file, before it creates its first backend."""
    from jax._src import xla_bridge

    if PLATFORM in xla_bridge._backend_factories:
        return  # the other copy was first
    platforms = _platforms_asked_for()
    if platforms and PLATFORM not in platforms:
        _leave_word("platforms " + ",".join(platforms))
        return
    asked = PLATFORM in platforms or bool(os.environ.get(SOCKET))
    if asked or _service_listens():
        _leave_word("registered")
        _prepare_jax(xla_bridge)
        # JAX itself registers what this variable names, after us.
        named = _named_library()
        if named is None:
            _register(xla_bridge, PRIORITY_ASKED if asked else PRIORITY_FOUND)
        elif not named.endswith(".json"):
            _guarded(_run_callbacks_of, named)


def _leave_word(what: str) -> None:
    """For `salus run`, which says at the end if its command opened no session, and why."""
    path = os.environ.get(RUN_NOTES)
    if path:
        with contextlib.suppress(OSError), open(path, "a", encoding="utf-8") as notes:
            notes.write(what + "\n")


# ---------------------------------------------------------------- is Salus wanted?


def _platforms_asked_for() -> list[str]:
    """What JAX_PLATFORMS says, or `jax.config.update("jax_platforms", …)`."""
    names = getattr(jax.config, "jax_platforms", None) or os.environ.get("JAX_PLATFORMS") or ""
    return [name.strip() for name in names.split(",") if name.strip()]


def _service_listens() -> bool:
    """Whether a service of this user or of the system accepts connections.

    The library knows where to look and whom to trust (`crates/channel/src/endpoint.rs`); a copy of
    that rule here would go its own way. Loading the library takes about a millisecond, once, beside
    the second that importing JAX takes, and only where nothing was asked; a process that then uses
    Salus has it loaded anyway. One that has no library does not use Salus.
    """
    try:
        listens = ctypes.CDLL(_library_path()).salus_service_listens
    except (OSError, RuntimeError, AttributeError):
        return False
    listens.argtypes, listens.restype = [ctypes.c_uint32], ctypes.c_int
    return bool(listens(CONNECT_MILLISECONDS))


# ---------------------------------------------------------------- registration


def _named_library() -> str | None:
    """What JAX's own variable for plugins says of this platform."""
    entries = os.environ.get("PJRT_NAMES_AND_LIBRARY_PATHS", "").split(",")
    named = (entry.partition(":") for entry in entries)
    return next((path for name, _, path in named if name == PLATFORM), None)


def _register(xla_bridge, priority: int) -> None:
    try:
        path = _library_path()
        xla_bridge.register_plugin(PLATFORM, priority=priority, library_path=path)
        _guarded(_run_callbacks_of, path)
    except Exception as error:
        # JAX would log this and go on without Salus, that is, silently on something else.
        _register_failure(xla_bridge, error, priority)


def _library_path() -> str:
    given = os.environ.get(LIBRARY)
    path = given or os.path.join(os.path.dirname(os.path.abspath(__file__)), LIBRARY_FILE)
    if os.path.isfile(path):
        return path
    if given:
        raise RuntimeError(
            f"{LIBRARY} names `{path}`, and there is no such file; "
            f"unset it, or set it to the path of `{LIBRARY_FILE}`"
        )
    raise RuntimeError(
        f"`{path}` is missing; install the package `salus` again, "
        f"or set {LIBRARY} to the path of `{LIBRARY_FILE}`"
    )


def _register_failure(xla_bridge, error: Exception, priority: int) -> None:
    def fail():
        raise RuntimeError(f"Salus cannot be used: {error}") from error

    xla_bridge.register_backend_factory(PLATFORM, fail, priority=priority, fail_quietly=False)


def _wrap_factories(xla_bridge) -> None:
    """Puts Salus before the vendors' backends, once JAX knows all plugins.

    JAX discovers plugins in no particular order and, unless JAX_PLATFORMS says otherwise, creates
    a client of each. So whichever it comes to first creates Salus' client, which tells what the
    service serves; a backend of that name is then that client, and the vendor's own is not created.
    JAX's own CPU backend stays, and so does every other.
    """
    wrapped = []

    def wrap() -> None:
        for name, registration in xla_bridge._backend_factories.items():
            if name == "cpu" or name in wrapped:
                continue
            make = _ours_once if name == PLATFORM else _ours_or_vendors
            factory = make(xla_bridge, name, registration.factory)
            xla_bridge._backend_factories[name] = dataclasses.replace(registration, factory=factory)
            wrapped.append(name)

    # JAX calls it once for each plugin.
    xla_bridge.register_plugin_callbacks(lambda c_api: _guarded(wrap))


def _ours_once(xla_bridge, name: str, create):
    """The factory of Salus' client, of which a process has one."""

    def factory():
        client = xla_bridge._backends.get(PLATFORM)
        if client is None:
            client = create()
            # JAX does this itself, but only after the call for this very name.
            xla_bridge._backends[PLATFORM] = client
            _guarded(_alias_gpu, xla_bridge, client)
            _guarded(_lower_linalg_plainly, client)
            _guarded(_say_one_device, xla_bridge, client)
        return client

    return factory


def _ours_or_vendors(xla_bridge, name: str, create):
    """The factory of a vendor's backend: Salus' client, if that is what the service serves."""

    def factory():
        # It may have been changed since the plugins were discovered.
        platforms = _platforms_asked_for()
        if platforms and PLATFORM not in platforms:
            return create()
        ours = xla_bridge._backend_factories[PLATFORM].factory()
        return ours if _platform_of(ours) == name else create()

    return factory


def _platform_of(client) -> str:
    """The vendor's name: JAX calls both `cuda` and `rocm` a `gpu`."""
    return getattr(client, "_raw_platform", client.platform)


def _alias_gpu(xla_bridge, client) -> None:
    """JAX asks for "gpu" in callbacks and exports, and looks it up under the vendor's name."""
    if _platform_of(client) in ("cuda", "rocm"):
        xla_bridge._backends.setdefault(_platform_of(client), client)


# What JAX makes custom calls of on GPUs though it has a lowering in plain operations, too: for
# most the default of all platforms, for `eigh` the one for TPUs.
_PLAIN_IN_JAX = (
    "cholesky", "cholesky_update", "eigh", "geqrf", "householder_product", "lu",
    "lu_pivots_to_permutation", "ormqr", "svd", "symmetric_product", "triangular_solve",
    "tridiagonal_solve",
)  # fmt: skip


def _lower_linalg_plainly(client) -> None:
    """Where the service has no handlers of the vendor's, `jnp.linalg` does without custom calls.

    Only for this platform, whose one backend in this process is Salus'.
    """
    if getattr(client.local_devices()[0], "salus_linalg", None) != "plain":
        return
    from jax._src.interpreters import mlir
    from jax._src.lax import linalg

    rules = mlir._platform_specific_lowerings[_platform_of(client)]
    for name in _PLAIN_IN_JAX:
        primitive = getattr(linalg, f"{name}_p", None)
        # Older versions have no rule for some.
        if primitive not in rules:
            continue
        if primitive in mlir._lowerings:
            del rules[primitive]
        else:
            rules[primitive] = mlir._platform_specific_lowerings["tpu"][primitive]


_VIRTUAL_DEVICES_FLAG = "--xla_force_host_platform_device_count="


def _say_one_device(xla_bridge, client) -> None:
    """Scripts that make virtual devices would go on with one, or fail over its number."""
    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if "=" in flag]
    # As XLA has it, the last one counts.
    counts = [flag for flag in flags if flag.startswith(_VIRTUAL_DEVICES_FLAG)][-1:]
    asked = {f"XLA_FLAGS={flag}": flag.partition("=")[2] for flag in counts}
    configured = getattr(jax.config, "jax_num_cpu_devices", None)
    asked[f"jax_num_cpu_devices={configured}"] = str(configured)
    for setting, count in asked.items():
        if count.isdigit() and int(count) > 1:
            logger.warning(
                "salus: `%s` asks for %s devices, and a job of Salus has one: the setting only "
                'changes JAX\'s own CPU backend (`jax.devices("cpu")`); to use virtual devices, '
                "run the script without Salus, with JAX_PLATFORMS=cpu",
                setting,
                count,
            )
            return


def _guarded(adjust, *args) -> None:
    try:
        adjust(*args)
    except Exception as error:
        logger.warning("Salus works with this version of JAX, but not fully: %r", error)


# ---------------------------------------------------------------- what JAX must know beforehand


def _prepare_jax(xla_bridge) -> None:
    # Otherwise each start warns that the platform is experimental.
    getattr(xla_bridge, "_nonexperimental_plugins", set()).add(PLATFORM)
    _guarded(_wrap_factories, xla_bridge)


# ---------------------------------------------------------------- callbacks
#
# Programs run in the service; the functions that they call run here. JAX hands its callables to the
# library with each launch, and the library calls `_run_callback` from a thread of its own.


class _Array(ctypes.Structure):
    """An operand or a result in shared memory (`Array` of the library's `callbacks.rs`)."""

    _fields_ = [
        ("element_type", ctypes.c_uint32),
        ("rank", ctypes.c_uint32),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
    ]


class _Request(ctypes.Structure):
    _fields_ = [
        ("callable", ctypes.py_object),
        ("layout", ctypes.c_uint64),
        ("num_operands", ctypes.c_size_t),
        ("operands", ctypes.POINTER(_Array)),
        ("num_results", ctypes.c_size_t),
        ("results", ctypes.POINTER(_Array)),
        ("buffers", ctypes.c_bool),
    ]


_Runner = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_TOKEN = 23

# By PJRT's number. Types of less than a byte come with their bits, several elements in a byte.
_DTYPES = (
    None, np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32,
    np.uint64, np.float16, np.float32, np.float64, "bfloat16", np.complex64, np.complex128,
    "float8_e5m2", "float8_e4m3fn", "float8_e4m3b11fnuz", "float8_e5m2fnuz", "float8_e4m3fnuz",
    "int4", "uint4", None, "int2", "uint2", "float8_e4m3", "float8_e3m4", "float8_e8m0fnu",
    "float4_e2m1fn",
)  # fmt: skip
_BITS = {21: 4, 22: 4, 24: 2, 25: 2, 29: 4}


# Of the library: answers a call, and waits for the next one.
_next_callback = None


def _run_callbacks_of(path: str) -> None:
    """Lets the library at `path` call Python functions."""
    global _next_callback
    library = ctypes.CDLL(path)
    _next_callback = library.salus_next_callback
    _next_callback.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    _next_callback.restype = ctypes.POINTER(_Request)
    library.salus_set_callback_runner(_run_callbacks)


@_Runner
def _run_callbacks(channel) -> None:
    """Runs the calls of a channel until it ends, in a thread that the library made for it."""
    layouts, failed = {}, None
    while request := _next_callback(channel, failed, len(failed or b"")):
        failed = _run_callback(request.contents, layouts)


def _run_callback(request: _Request, layouts: dict) -> bytes | None:
    """Returns why there are no results, if so. Nothing of the call is alive afterwards."""
    try:
        layout = layouts.get(request.layout)
        if layout is None:
            if len(layouts) >= 64:
                layouts.clear()
            layout = layouts[request.layout] = (
                [_Place(request.operands[i]) for i in range(request.num_operands)],
                [_Place(request.results[i]) for i in range(request.num_results)],
            )
        operands, results = layout
        if request.buffers:
            buffers = [_Buffer(place, writeable=False) for place in operands]
            buffers += [_Buffer(place, writeable=True) for place in results]
            request.callable(_BufferContext(), *buffers)
            return None
        returned = request.callable(*[place.value() for place in operands])
        for place, value in zip(results, returned, strict=True):
            place.put(value)
        return None
    except BaseException as error:
        return "".join(traceback.format_exception(error)).encode(errors="replace")


class _Place:
    """Where an operand or a result is in shared memory. The library says when that changes."""

    def __init__(self, array: _Array):
        self.element_type, self.address, self.bytes = array.element_type, array.data, array.bytes
        self.shape = tuple(array.dims[: array.rank])
        self.bits = _BITS.get(self.element_type)
        if self.element_type == _TOKEN:
            return
        named = _DTYPES[self.element_type] if self.element_type < len(_DTYPES) else None
        if named is None:
            raise TypeError(
                f"arrays of PJRT element type {self.element_type} cannot be given to a callback"
            )
        self.dtype = np.dtype(getattr(ml_dtypes, named) if isinstance(named, str) else named)
        # No element type of less than a byte has a view.
        if self.bits is None:
            memory = (ctypes.c_ubyte * self.bytes).from_address(self.address)
            self.view = np.ndarray(self.shape, self.dtype, memory)

    def value(self):
        """A copy: the function may keep it, and the memory is used again."""
        if self.element_type == _TOKEN:
            return None
        # Arrays over bytes cannot be written to.
        copy = ctypes.string_at(self.address, self.bytes)
        if self.bits is None:
            return np.ndarray(self.shape, self.dtype, copy)
        packed = np.frombuffer(copy, np.uint8)
        shifts = np.arange(0, 8, self.bits, dtype=np.uint8)
        parts = (packed[:, None] >> shifts) & ((1 << self.bits) - 1)
        value = parts.ravel()[: math.prod(self.shape)].view(self.dtype).reshape(self.shape)
        value.flags.writeable = False
        return value

    def put(self, value) -> None:
        if self.element_type == _TOKEN:
            return
        value = np.asarray(value)
        if value.dtype == self.dtype and value.shape == self.shape and self.bits is None:
            self.view[...] = value
            return
        value = np.ascontiguousarray(value)
        if self.bits is not None:
            each = 8 // self.bits
            parts = value.view(np.uint8).ravel() & ((1 << self.bits) - 1)
            parts = np.pad(parts, (0, -parts.size % each)).reshape(-1, each)
            shifts = np.arange(0, 8, self.bits, dtype=np.uint8)
            value = np.bitwise_or.reduce(parts << shifts, axis=1, dtype=np.uint8)
        if value.nbytes != self.bytes:
            raise ValueError(f"a result of {self.bytes} bytes was expected, found {value.nbytes}")
        ctypes.memmove(self.address, value.ctypes.data, self.bytes)


class _Buffer:
    """What `jax.experimental.buffer_callback` gives to its function, over shared memory."""

    def __init__(self, place: _Place, writeable: bool):
        if place.bits is not None:
            raise TypeError("elements of less than a byte cannot be given to a buffer callback")
        self._array = place.view.view()
        self._array.flags.writeable = writeable

    shape = property(lambda self: self._array.shape)
    dtype = property(lambda self: self._array.dtype)
    ndim = property(lambda self: self._array.ndim)
    writeable = property(lambda self: self._array.flags.writeable)

    def __array__(self, dtype=None, copy=None):
        if dtype is not None and np.dtype(dtype) != self.dtype:
            return self._array.astype(dtype)
        return self._array.copy() if copy else self._array

    def __dlpack__(self, **options):
        # Where numpy lends no memory that must not be written, a copy serves.
        return (self._array if self.writeable else self._array.copy()).__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class _BufferContext:
    """The first argument of such a function; there is no stream on a CPU device."""

    @property
    def stage(self):
        from jax.experimental.buffer_callback import ExecutionStage

        return ExecutionStage.EXECUTE

    @property
    def stream(self):
        raise jax.errors.JaxRuntimeError("XLA FFI GPU context is not available")
