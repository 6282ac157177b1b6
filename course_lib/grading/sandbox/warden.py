"""Start the work inside the sandbox, as `python -m course_lib.grading.sandbox.warden`; supervise.py does the work.

With `shared` it imports what submissions need and waits. For each of them it forks a warden into namespaces of its own
(namespaces.py). It never reads a notebook or an answer itself, so every fork inherits the same initial state.
"""

import gc
import os
import signal
import socket
import sys
from typing import NoReturn

GONE = b"gone"  # the message to the process that gave the job


def main() -> None:
    """Prepare for untrusted code, then do the job from standard input, or all jobs that are sent over it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.argv[1:] == ["shared"]:
        _wait_for_jobs(socket.socket(fileno=0))
    else:
        from course_lib.grading.sandbox import child

        child.warm_up()
        _work(0, os.dup(1))


def _work(source: int, out: int) -> None:
    os.dup2(2, 1)  # output that is printed by mistake is not an answer
    from course_lib.grading.sandbox import seccomp, supervise

    seccomp.hide(True)
    supervise.serve(source, out)


def _wait_for_jobs(control: socket.socket) -> None:
    """Fork a warden for each job, one after another; report to the giver when nothing is left of a job."""
    from course_lib.grading.sandbox import child, seccomp, supervise  # noqa: F401, the last for those that are forked

    child.warm_up()
    seccomp.hide(True)
    gc.freeze()  # so that garbage collection does not write to shared memory
    while True:
        file_bytes, pipes, *_ = socket.recv_fds(control, 8, 3)
        if len(pipes) < 3:
            return  # the process that gives jobs is gone
        if os.fork() == 0:
            _attend(int.from_bytes(file_bytes, "big"), *pipes)
        for pipe in pipes:
            os.close(pipe)
        if not _children_ended_well():
            return  # one was killed: the giver starts another sandbox
        control.send(GONE)


def _attend(file_bytes: int, source: int, out: int, errors: int) -> NoReturn:
    """Do one job in this process, which has nothing of the server except its memory."""
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
    """Wait until there are no children. When a process namespace's first process ends, the kernel kills the others."""
    well = True
    try:
        while True:
            well &= os.wait()[1] == 0
    except ChildProcessError:
        return well


if __name__ == "__main__":
    main()
