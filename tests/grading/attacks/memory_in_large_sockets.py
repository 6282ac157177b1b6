"""Buffers of the kernel that were asked to be large, and those of connections, which grow by themselves."""

CELL = """
import socket

def attack(x):
    kept, n_bytes = [], 0
    for family in (socket.AF_UNIX, socket.AF_INET):
        for _ in range(4):
            try:
                kept += (pair := connected(family))
            except OSError:
                break
            for end in pair:
                for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                    try:
                        end.setsockopt(socket.SOL_SOCKET, option, 2**30)
                    except OSError:
                        pass
                end.setblocking(False)
                try:
                    while True:
                        n_bytes += end.send(b"x" * 2**16)
                except BlockingIOError:
                    pass
    return float(n_bytes / 4)

def connected(family):
    if family == socket.AF_UNIX:
        return socket.socketpair()
    server, client = socket.socket(family), socket.socket(family)
    server.bind(("127.0.0.1", 0))
    server.listen()
    client.connect(server.getsockname())
    return [client, server.accept()[0]]
"""
STATUS = "ran"
MOST = 2**20  # a pair; no more than 128 pairs may be open
