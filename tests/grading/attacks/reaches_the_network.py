"""Addresses, names, and every other family of sockets."""

CELL = r"""
import socket

def attack(x):
    worked = []

    def attempt(name, reach):
        try:
            reach()
            worked.append(name)
        except OSError:
            pass

    for port in (22, 53, 80, 443, 8888, 45123):
        for host in ("127.0.0.1", "::1", "10.0.0.1", "169.254.169.254"):
            attempt((host, port), lambda host=host, port=port: socket.create_connection((host, port), 0.2))
    attempt("names", lambda: socket.getaddrinfo("example.com", 80))
    attempt("datagram", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("8.8.8.8", 53)))
    for path in ("\0canary", "/tmp/.X11-unix/X0", "/run/dbus/system_bus_socket", "/var/run/docker.sock"):
        attempt(path, lambda path=path: socket.socket(socket.AF_UNIX).connect(path))
    for family in range(64):
        if family not in (1, 2, 10):
            attempt(family, lambda family=family: socket.socket(family, socket.SOCK_DGRAM))
            attempt(family, lambda family=family: socket.socket(family, socket.SOCK_RAW))
    attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
    return tuple(map(str, worked))
"""
STATUS = "ran"
VALUE = ()
