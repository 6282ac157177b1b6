"""Alarms, exit handlers and finalisers that wait for the grader's code."""

CELL = """
import atexit
import os
import signal
import threading
import weakref

def attack(x):
    weakref.finalize(threading.main_thread(), os._exit, 0)
    atexit.register(os._exit, 0)
    threading.Timer(0.01, lambda: None).start()
    signal.signal(signal.SIGVTALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.001, 0.001)
    return 0.0
"""
STATUS = "ran"
VALUE = 0.0
