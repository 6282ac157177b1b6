"""Some virtual machines announce AMX and do not have it: a product of bfloat16 ends the process there.

The library never multiplies in bfloat16 or float16 on its own; the tests do, to see that dtypes are kept. There oneDNN
is told to do without, which changes the speed of such products alone.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

_PRODUCTS = """
import torch
for kind in (torch.bfloat16, torch.float16):
    torch.nn.functional.linear(torch.ones(8, 64, dtype=kind), torch.ones(64, 64, dtype=kind))
"""
_PROBED = "COURSE_TESTS_PROBED"


def avoid_those_that_are_missing() -> None:
    """Set ONEDNN_MAX_CPU_ISA where a product needs instructions that this machine has not. Before torch is used."""
    if "ONEDNN_MAX_CPU_ISA" in os.environ or _PROBED in os.environ or not _announces_amx():
        return
    os.environ[_PROBED] = "1"  # the processes that tests start inherit it
    if subprocess.run([sys.executable, "-c", _PRODUCTS], capture_output=True).returncode == -signal.SIGILL:
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE"


def _announces_amx(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    return cpuinfo.exists() and "amx_tile" in cpuinfo.read_text()
