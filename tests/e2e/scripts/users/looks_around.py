"""Tries whatever one process can do to another that is not its own, and to files.

Arguments: processes, `--`, files. Prints how many attempts there were, and those that succeeded.
"""

import ctypes
import os
import signal
import sys

libc = ctypes.CDLL(None, use_errno=True)
PTRACE_ATTACH, PTRACE_DETACH, PTRACE_SEIZE = 16, 17, 0x4206
attempts, successes = 0, []


def attempt(what, call):
    global attempts
    attempts += 1
    try:
        call()
    except OSError:
        return
    successes.append(what)


def ptrace(request, pid):
    if libc.ptrace(request, pid, None, None) != 0:
        raise OSError(ctypes.get_errno())
    libc.ptrace(PTRACE_DETACH, pid, None, None)


def read_memory(pid):
    class Piece(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    buffer = ctypes.create_string_buffer(8)
    ours = Piece(ctypes.cast(buffer, ctypes.c_void_p), 8)
    theirs = Piece(id(buffer), 8)
    if libc.process_vm_readv(pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0) < 0:
        raise OSError(ctypes.get_errno())


def open_and_read(path):
    with open(path, "rb") as file:
        file.read(1)


def take_descriptor(pid):
    handle = os.pidfd_open(pid)
    try:
        if libc.syscall(438, handle, 0, 0) < 0:  # pidfd_getfd
            raise OSError(ctypes.get_errno())
    finally:
        os.close(handle)


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def look_at(pid):
    for sent in (0, signal.SIGCONT, signal.SIGSEGV, signal.SIGKILL):
        attempt(f"signal {sent} to {pid}", lambda sent=sent: os.kill(pid, sent))
    attempt(f"attach to {pid}", lambda: ptrace(PTRACE_ATTACH, pid))
    attempt(f"seize {pid}", lambda: ptrace(PTRACE_SEIZE, pid))
    attempt(f"memory of {pid}", lambda: read_memory(pid))
    attempt(f"descriptor of {pid}", lambda: take_descriptor(pid))
    for name in ("mem", "environ", "maps", "auxv", "stack", "syscall"):
        attempt(f"{name} of {pid}", lambda name=name: open_and_read(f"/proc/{pid}/{name}"))
    attempt(f"descriptors of {pid}", lambda: os.listdir(f"/proc/{pid}/fd"))
    for number in range(64):
        path = f"/proc/{pid}/fd/{number}"
        attempt(f"descriptor {number} of {pid}", lambda path=path: open_and_read(path))
    attempt(f"{pid} as a victim", lambda: write(f"/proc/{pid}/oom_score_adj", "1000"))


def look_into(path):
    read = os.listdir if os.path.isdir(path) else open_and_read
    attempt(f"read {path}", lambda: read(path))
    attempt(f"write {path}", lambda: open(path, "ab").close())
    attempt(f"remove {path}", lambda: os.unlink(path))


at = sys.argv.index("--")
for pid in sys.argv[1:at]:
    look_at(int(pid))
for path in sys.argv[at + 1 :]:
    look_into(path)
print(attempts)
print(successes)
