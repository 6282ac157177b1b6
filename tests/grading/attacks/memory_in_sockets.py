"""Buffers of the kernel, filled and kept."""

CELL = """
import os
import socket

def attack(x):
    kept, n_bytes = [], 0
    try:
        while True:
            pair = socket.socketpair()
            kept += pair
            pair[0].setblocking(False)
            try:
                while True:
                    n_bytes += pair[0].send(b"x" * 2**16)
            except BlockingIOError:
                pass
    except OSError:
        pass
    return float(n_bytes)
"""
MOST = 209715200
