"""Triton kernels that make sparsity pay: one file each, with the reference in plain torch beside it.

The folders say what is sparse: `weights`, `cache`, `experts`, or what each token takes of a layer, `per_token`. A
kernel's file holds `reference` (what it computes), `bytes_moved` (the least it must move, hence its bound), the kernel,
`launch` (checks its arguments, then runs kernel or reference), `example` and `CASES` (what the tests try). To add one,
write the file, a slow loop of the same name in tests/helpers/kernel_twins.py, and a bench in the same folder of
course_kernels/bench/: all three are found by their names. The kernels are for inference: they have no gradient.
"""

FOLDERS = ("weights", "cache", "experts", "per_token")  # the other folders time them, and need more than torch
