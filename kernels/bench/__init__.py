"""One bench, one file: its contests, each compared with its bound and the best alternative without it.

Those of one kernel lie in the folder that is called as the kernel's; those of a whole method, here.
"""
