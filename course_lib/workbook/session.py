"""The session in which the course's functions are called: the kernel, the cell, and the frontend."""

import os
import sys
from pathlib import Path
from typing import Any

_JUPYTER = "JPY_SESSION_NAME"  # Jupyter's server sets it to the notebook's path
_VS_CODE = "__vsc_ipynb_file__"  # VS Code sets this variable in the notebook


def strict() -> bool:
    """Whether checks raise: COURSE_STRICT=1, as when the masters are tested."""
    return os.environ.get("COURSE_STRICT", "") not in ("", "0")


def shell() -> Any:
    """IPython's shell; None in plain Python."""
    return sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()


def in_notebook() -> bool:
    """Whether output is rendered by Jupyter."""
    return type(shell()).__name__ == "ZMQInteractiveShell"


def has_widgets() -> bool:
    """Whether a person can press a button: the kernel was started by JupyterLab, Notebook, VS Code or Colab.

    Where nbval, nbconvert or `course run` executes the notebook, a button would be an empty box in the result.
    """
    if not in_notebook():
        return False
    return bool(os.environ.get(_JUPYTER)) or _VS_CODE in shell().user_ns or "google.colab" in sys.modules


def notebook_file() -> Path | None:
    """The notebook's file, where the frontend names it and it has not been renamed since."""
    if not has_widgets():
        return None
    path = Path(str(shell().user_ns.get(_VS_CODE) or os.environ.get(_JUPYTER, "")))
    return path if path.suffix == ".ipynb" and path.is_file() else None


def cell_number() -> int:
    """The number in front of the running cell: 7 for [7]. IPython's own counter may be one ahead already."""
    return len(shell().history_manager.input_hist_raw) - 1


def cell_id() -> str:
    """The running cell, also when it runs a second time; only its number where the frontend does not name it."""
    parent = shell().get_parent() if hasattr(shell(), "get_parent") else {}
    return str(parent.get("metadata", {}).get("cellId") or cell_number())
