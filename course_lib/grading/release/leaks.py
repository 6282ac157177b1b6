"""Check that no line of a solution region is in the files for students."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from course_lib.workbook.masters import BEGIN, END

SHORT = 12  # characters without spaces; so short a line may occur anywhere by chance
_BINARY = ".safetensors"
_READABLE = re.compile(rb"[\t\n\r -~]{8,}")
_REGION = re.compile(rf"{BEGIN}\n(.*?){END}", re.DOTALL)

# Lines that may occur elsewhere: the library implements the methods of the lessons, and hints resemble solutions.
ALLOWED = {
    "dense[keep] = values": "hint 3 of patterns.bitmap says it",
    "moved = inverse @ x": "hint 2 of classic.recursion says it",
    "for start in range(0, weight.shape[1], block_size):": "pruning/layerwise/solver.py goes through blocks so",
    "groups = -(-columns // group)": "quantization/storage.py counts groups so",
    "model.requires_grad_(False)": "says nothing; hint 3 of compress.frozen",
    "prompt = prompt.clone().requires_grad_()": "hint 3 of compress.frozen says it",
    "weight = weight.clone()": "says nothing; kernels/bench/sparsegpt.py",
    "weight[:, end:] -= errors @ upper[start:end, end:]": "kernels/bench/sparsegpt.py times this product",
}


@dataclass(frozen=True)
class Leak:
    """A line of a solution and the file that contains it."""

    line: str
    file: str


def leaks(files: dict[str, bytes], masters: list[Path]) -> list[Leak]:
    """Find every line of a solution that is in a file, ignoring spaces and comments; allowed lines are included."""
    texts = {name: _squeezed(_text(name, content)) for name, content in files.items()}
    lines = {line for master in masters for line in solution_lines(master.read_text(encoding="utf-8"))}
    squeezed = {line: _squeezed(line) for line in sorted(lines)}
    return [
        Leak(line, name) for line, looked_for in squeezed.items() for name, text in texts.items() if looked_for in text
    ]


def solution_lines(source: str) -> list[str]:
    """Return the lines of a master's solution regions that contain code."""
    lines = [re.sub(r"\s*#.*", "", line).strip() for region in _REGION.findall(source) for line in region.splitlines()]
    return [line for line in lines if len(_squeezed(line)) > SHORT and not re.fullmatch(r"return \w+", line)]


def _text(name: str, content: bytes) -> str:
    """Return the text of a file: the cells of a notebook, and the readable parts of a file of weights."""
    if name.endswith(_BINARY):
        return "\n".join(run.decode() for run in _READABLE.findall(content))
    text = content.decode("utf-8", errors="ignore")
    if not name.endswith(".ipynb"):
        return text
    return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)
