"""Triton kernels that make sparsity pay: one file each, which also contains the reference in plain torch.

The files are in kernels/ at the top of a checkout, and in course_lib/kernels/ of an installed package; both are
imported as `course_lib.kernels`. That folder has no `__init__.py`: Hugging Face owns the import name `kernels`, and
transformers would mistake ours for it.

The folders say what is sparse: `weights`, `cache`, `experts`, or the part of a layer that a token uses, `per_token`. A
kernel's file holds `reference` (what it computes), `bytes_moved` (the least it must move, hence its bound), the kernel,
`takes` (whether it supports a shape), `launch` (checks its arguments, then runs kernel or reference), `example` and
`CASES` (for the tests). To add one, write the file, a slow loop of the same name in tests/helpers/kernel_twins.py, and
a bench in the same folder of kernels/bench/: all three are found by their names. The kernels are for inference: they
have no gradient.

Methods do not import kernels. They call `kernel_for` in dispatch.py, which returns a kernel's module on a GPU and None
on a CPU, where the method's own code runs.
"""

from pathlib import Path

FOLDERS = ("weights", "cache", "experts", "per_token")  # the other folders time them, and need more than torch
_INSTALLED, _CHECKOUT = Path(__file__).with_suffix(""), Path(__file__).parents[1] / "kernels"
# One of the two and never both: with an installed package, a `kernels` next to it may be Hugging Face's.
__path__ = [str(_INSTALLED if _INSTALLED.is_dir() else _CHECKOUT)]
