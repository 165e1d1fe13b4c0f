"""Just enough of the wire protocol to be an old or odd peer. See `crates/wire`."""

import array
import contextlib
import fcntl
import mmap
import os
import socket
import struct
import threading
import time
from typing import Self

HELLO, REFUSED, WELCOME = 1, 2, 1
COMMAND, SEGMENT, COMPILE, LAUNCH, AWAIT = 2, 3, 6, 7, 10
COMPILED, COMPILE_FAILED, COMPLETED = 4, 5, 6
HEADER = struct.Struct("<IHH")


def text(value: str) -> bytes:
    return struct.pack("<I", len(value.encode())) + value.encode()


def frame(kind: int, body: bytes) -> bytes:
    return HEADER.pack(len(body), kind, 0) + body


def hello(protocol_min: int, protocol_max: int) -> bytes:
    body = struct.pack("<II", protocol_min, protocol_max) + text("9.9.9") + text("test")
    return frame(HELLO, body)


class Session:
    """A job that speaks the protocol by itself: quick to start, and free to misbehave."""

    SEGMENT_BYTES = 1 << 20

    def __init__(self, path, name: str = "raw", seconds: float = 60.0):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # First, because one with a time limit does not wait for a listener that is behind.
        self.socket.connect(str(path))
        self.socket.settimeout(seconds)
        # Weight 1, normal priority; no deadline, work or limit of memory.
        settings = struct.pack("<IBBBB", 1, 2, 0, 0, 0)
        body = struct.pack("<II", 1, 1) + text("9.9.9") + text(name) + settings
        # Of no `salus run`, and on whichever device.
        self.socket.sendall(frame(HELLO, body + struct.pack("<Q", 0) + text("")))
        self.memory = None
        self.session = 0

    def welcome(self) -> Self:
        kind, body = self.receive()
        assert kind == WELCOME, refusal(body)
        _, self.session = struct.unpack_from("<IQ", body)
        return self

    def receive(self) -> tuple[int, bytes]:
        return receive(self.socket)

    def share(self) -> None:
        """Announces segment 0, for sources."""
        memory = os.memfd_create("test", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        os.ftruncate(memory, self.SEGMENT_BYTES)
        fcntl.fcntl(memory, 1033, 0x0002)  # F_ADD_SEALS, F_SEAL_SHRINK
        self.memory = mmap.mmap(memory, self.SEGMENT_BYTES)
        header = HEADER.pack(12, SEGMENT, 1)
        body = struct.pack("<IQ", 0, self.SEGMENT_BYTES)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [memory]))]
        self.socket.sendmsg([header + body], rights)
        os.close(memory)

    def ask_to_compile(self, program: int, code: str, offset: int = 0) -> int:
        """Returns where the next source may begin."""
        if self.memory is None:
            self.share()
        source = code.encode()
        self.memory[offset : offset + len(source)] = source
        region = struct.pack("<IQQ", 0, offset, len(source))
        body = struct.pack("<Q", program) + text("mlir") + region + struct.pack("<I", 0)
        self.socket.sendall(frame(COMPILE, body))
        return offset + len(source)

    def compile(self, program: int, code: str) -> str | None:
        """Why it is refused, or nothing."""
        self.ask_to_compile(program, code)
        while True:
            kind, body = self.receive()
            if kind == COMPILED:
                return None
            if kind == COMPILE_FAILED:
                return refusal(body[8:])[1]

    def launch(self, operation: int, program: int, first_output: int) -> None:
        nothing = struct.pack("<II", 0, 0)
        body = struct.pack("<QQQ", operation, program, first_output) + nothing
        # In one write: nobody may be there for a second one.
        waits = frame(AWAIT, struct.pack("<Q", operation))
        self.socket.sendall(frame(LAUNCH, body) + waits)

    def until_over(self) -> None:
        """Reads until the service has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while True:
                self.receive()

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.close()


def fate(path, session: int, seconds: float = 60.0) -> str | None:
    """Why a session of this user is gone. Its end may have reached us before the service, so an
    answer without a reason is asked for again, as the library does."""
    end = time.monotonic() + seconds
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
            asked.settimeout(seconds)
            asked.connect(str(path))
            request = struct.pack("<BQ", 7, session)
            asked.sendall(frame(COMMAND, struct.pack("<II", 1, 1) + request))
            kind, body = receive(asked)
        if kind == REFUSED:
            return refusal(body)[1]
        if time.monotonic() > end:
            return None
        time.sleep(0.02)


def receive(connection: socket.socket) -> tuple[int, bytes]:
    length, kind, _ = HEADER.unpack(_exactly(connection, HEADER.size))
    return kind, _exactly(connection, length)


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise ConnectionError(f"closed after {len(data)} of {count} bytes")
        data += more
    return data


def refusal(body: bytes) -> tuple[int, str]:
    """Code and text, the hint after an empty line as a person reads it."""
    code, length = struct.unpack_from("<II", body)
    message, rest = body[8 : 8 + length].decode(), body[8 + length :]
    if rest[0]:
        (length,) = struct.unpack_from("<I", rest, 1)
        message += "\n\nhint: " + rest[5 : 5 + length].decode()
    return code, message


@contextlib.contextmanager
def listening(path, answer):
    """Something that listens where a daemon should; `answer(connection)` is all that it does."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(path))
    server.listen()
    kept = []

    def serve():
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            kept.append(connection)
            with contextlib.suppress(OSError):
                answer(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        for connection in kept:
            connection.close()
        thread.join()
