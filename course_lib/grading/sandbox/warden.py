"""Inside the sandbox: where it starts, as `python -m course_lib.grading.sandbox.warden`; the work is in supervise.py.

With `shared` it imports what submissions need and waits. For each of them it forks a warden into namespaces of its own
(namespaces.py). It never reads a notebook or an answer itself: what the next one inherits is as it was at the start.
"""

import gc
import os
import signal
import socket
import sys
from typing import NoReturn

GONE = b"gone"  # what the giver is told


def main() -> None:
    """Make ready for strangers, then do the job that comes on the standard input, or all that are sent over it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.argv[1:] == ["shared"]:
        _wait_for_jobs(socket.socket(fileno=0))
    else:
        from course_lib.grading.sandbox import child

        child.warm_up()
        _work(0, os.dup(1))


def _work(source: int, out: int) -> None:
    os.dup2(2, 1)  # whatever is printed by mistake is no answer
    from course_lib.grading.sandbox import seccomp, supervise

    seccomp.hide(True)
    supervise.serve(source, out)


def _wait_for_jobs(control: socket.socket) -> None:
    """A warden for each job, one after another; the giver is told when nothing is left of one."""
    from course_lib.grading.sandbox import child, seccomp, supervise  # noqa: F401, the last for those that are forked

    child.warm_up()
    seccomp.hide(True)
    gc.freeze()  # so that their collections touch no memory that is shared
    while True:
        file_bytes, pipes, *_ = socket.recv_fds(control, 8, 3)
        if len(pipes) < 3:
            return  # the giver is gone
        if os.fork() == 0:
            _attend(int.from_bytes(file_bytes, "big"), *pipes)
        for pipe in pipes:
            os.close(pipe)
        if not _children_ended_well():
            return  # one was killed: the giver starts another sandbox
        control.send(GONE)


def _attend(file_bytes: int, source: int, out: int, errors: int) -> NoReturn:
    """The process of one job. It has nothing of the server's but memory."""
    from course_lib.grading.sandbox import namespaces

    try:
        for standard in (0, 1, 2):
            os.dup2(errors, standard)
        namespaces.enter(file_bytes)
        _work(source, out)
    except Exception as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(0)


def _children_ended_well() -> bool:
    """Waits until there are none. A process namespace ends with its first process: the kernel has killed the others."""
    well = True
    try:
        while True:
            well &= os.wait()[1] == 0
    except ChildProcessError:
        return well


if __name__ == "__main__":
    main()
