"""One bench, one file: its contests, each beside its bound and the best there is without it.

Those of one kernel lie in the folder that is called as the kernel's; those of a whole method, here.
"""
