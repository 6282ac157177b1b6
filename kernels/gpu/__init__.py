"""`make gpu`: everything that needs a GPU, in one command that needs torch, triton, numpy and pytest and no network.

`python3 -m course_lib.kernels.gpu` starts each part in a process of its own (process.py), so that a bad address or an
endless loop takes nothing else along. The parts (parts.py) are: the device and what it can do, the tests of each
kernel compiled, each bench. Their results go into one JSON file (report.py), which is written again after each part.
"""
