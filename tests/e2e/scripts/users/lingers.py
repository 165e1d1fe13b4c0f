"""Sends descriptors whose last close takes as long as this process likes, to whoever listens."""

import array
import socket
import struct
import sys
import threading
import time

kept = []


def lingering() -> socket.socket:
    """Closing it waits for a minute for the other side to read."""
    listener = socket.create_server(("127.0.0.1", 0))
    sender = socket.create_connection(listener.getsockname())
    kept.append((listener, listener.accept()[0]))
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
    sender.setblocking(False)
    try:
        while True:
            sender.send(b"\0" * 65536)
    except BlockingIOError:
        sender.setblocking(True)
    return sender


for descriptor in [lingering() for _ in range(8)]:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor.fileno()]))]
    connection.connect(sys.argv[1])
    try:
        connection.sendmsg([b"\1"], rights)
    except OSError as error:
        # A kernel that keeps them out says so, or the service has hung up already.
        print(f"not sent: {error}", flush=True)
    kept.append(connection)
    # The last close is to be the service's. Where it is ours, it waits in a thread.
    threading.Thread(target=descriptor.close, daemon=True).start()
print("ready", flush=True)
time.sleep(600)
