"""Just enough of the wire protocol to be an old or odd peer. See `crates/wire`."""

import contextlib
import socket
import struct
import threading

HELLO, REFUSED, WELCOME = 1, 2, 1
HEADER = struct.Struct("<IHHQ")


def text(value: str) -> bytes:
    return struct.pack("<I", len(value.encode())) + value.encode()


def frame(kind: int, body: bytes, sequence: int = 0) -> bytes:
    return HEADER.pack(len(body), kind, 0, sequence) + body


def hello(protocol_min: int, protocol_max: int) -> bytes:
    body = struct.pack("<II", protocol_min, protocol_max) + text("9.9.9") + text("test")
    return frame(HELLO, body)


def receive(connection: socket.socket) -> tuple[int, bytes]:
    length, kind, _, _ = HEADER.unpack(_exactly(connection, HEADER.size))
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
    code, length = struct.unpack_from("<II", body)
    return code, body[8 : 8 + length].decode()


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
