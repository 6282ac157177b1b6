"""Compile kernels for a GPU that is not here: triton and ptxas need none until the launch.

`recorded(module, arguments)` runs a launcher with every kernel of the module replaced by a recorder, so the signature
compiled is the one that the launcher really uses. Nothing is executed.
"""

import inspect
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from triton import compile as triton_compile
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import JITFunction
from triton.runtime.autotuner import Autotuner

TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.uint8: "*u8"}
TYPES |= {torch.int16: "*i16", torch.int32: "*i32", torch.int64: "*i64", torch.bool: "*i1"}


@dataclass(frozen=True)
class Launch:
    """One launch: the kernel, its arguments by name, and the settings it may run with."""

    kernel: JITFunction
    arguments: dict[str, Any]
    settings: list[tuple[dict[str, int], dict[str, int]]]  # (block sizes, compiler options)

    def compile(self, setting: int, capability: int) -> Any:
        blocks, options = self.settings[setting]
        arguments = self.arguments | blocks
        signature = {p.name: _type(p, arguments[p.name]) for p in self.kernel.params}
        values = {name: arguments[name] for name, kind in signature.items() if kind == "constexpr"}
        aligned = {
            (i,): [["tt.divisibility", 16]]
            for i, (p, kind) in enumerate(zip(self.kernel.params, signature.values(), strict=True))
            if kind[0] == "*" or (kind == "i32" and not p.do_not_specialize and arguments[p.name] % 16 == 0)
        }
        source = ASTSource(self.kernel, signature, values, aligned)
        return triton_compile(source, target=GPUTarget("cuda", capability, 32), options=options)


class Recorder:
    """Stands for a kernel: remembers how it was launched."""

    def __init__(self, kernel: Autotuner | JITFunction, launches: list[Launch]) -> None:
        self.kernel, self.launches = kernel, launches

    def __getitem__(self, grid: Any) -> Any:
        return self.record

    def record(self, *positional: Any, **named: Any) -> None:
        tuner = self.kernel if isinstance(self.kernel, Autotuner) else None
        options = {name: named.pop(name) for name in ("num_warps", "num_stages", "maxnreg") if name in named}
        settings = [({}, options)]
        kernel = tuner.fn if tuner else self.kernel
        arguments = inspect.signature(kernel.fn).bind_partial(*positional, **named).arguments
        if tuner:
            configs = tuner.early_config_prune(tuner.configs, arguments)
            settings = [(c.kwargs, {"num_warps": c.num_warps, "num_stages": c.num_stages}) for c in configs]
        self.launches.append(Launch(kernel, dict(arguments), settings))


def recorded(module: ModuleType, arguments: tuple, monkeypatch: Any, name: str = "launch") -> list[Launch]:
    """The launches that `module.launch(*arguments)`, or another function of the module, makes."""
    launches: list[Launch] = []
    with monkeypatch.context() as patch:
        patch.setattr(module, "runs_kernel", lambda tensor: True)
        for kernel, value in list(vars(module).items()):
            if isinstance(value, Autotuner | JITFunction):
                patch.setattr(module, kernel, Recorder(value, launches))
        getattr(module, name)(*arguments)
    return launches


def spilled_bytes(compiled: Any) -> int:
    """What each thread of a compiled kernel writes to memory because its registers do not suffice, as ptxas says it."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(compiled.asm["ptx"])
        architecture = re.search(r"^\.target (\w+)", compiled.asm["ptx"], re.MULTILINE)[1]
        command = [knobs.nvidia.ptxas.path, "-v", f"--gpu-name={architecture}", str(source), "-o", f"{folder}/kernel.o"]
        said = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(re.search(r"(\d+) bytes spill stores", said.stdout + said.stderr)[1])


def _type(parameter: Any, value: Any) -> str:
    """As triton's launcher sees it: what is None, and an integer that is 1, counts as known when compiling."""
    if (
        parameter.is_constexpr
        or value is None
        or (type(value) is int and value == 1 and parameter.do_not_specialize is False)
    ):
        return "constexpr"
    if isinstance(value, torch.Tensor):
        return TYPES[value.dtype]
    return "fp32" if isinstance(value, float) else "i32"
