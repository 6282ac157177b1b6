"""The session in which the course's functions are called: the kernel, the cell, and the frontend."""

import os
import sys
from pathlib import Path
from typing import Any

_JUPYTER = "JPY_SESSION_NAME"  # Jupyter's server sets it to the notebook's path
_VS_CODE = "__vsc_ipynb_file__"  # VS Code sets this variable in the notebook


def strict() -> bool:
    """Whether checks raise errors: COURSE_STRICT=1, as in tests of the masters."""
    return os.environ.get("COURSE_STRICT", "") not in ("", "0")


def shell() -> Any:
    """Return IPython's shell, or None in plain Python."""
    return sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()


def in_notebook() -> bool:
    """Whether Jupyter renders the output."""
    return type(shell()).__name__ == "ZMQInteractiveShell"


def has_widgets() -> bool:
    """Whether a person can press a button, because JupyterLab, Notebook, VS Code or Colab started the kernel.

    If nbval, nbconvert or `course run` executes the notebook, a button would be an empty box in the result.
    """
    if not in_notebook():
        return False
    return bool(os.environ.get(_JUPYTER)) or _VS_CODE in shell().user_ns or "google.colab" in sys.modules


def notebook_file() -> Path | None:
    """Return the notebook's file, if the frontend provides it and the file was not renamed since."""
    if not has_widgets():
        return None
    path = Path(str(shell().user_ns.get(_VS_CODE) or os.environ.get(_JUPYTER, "")))
    return path if path.suffix == ".ipynb" and path.is_file() else None


def cell_number() -> int:
    """Return the number in front of the running cell, such as 7 for [7]; IPython's counter may be one higher."""
    return len(shell().history_manager.input_hist_raw) - 1


def cell_id() -> str:
    """Identify the running cell, also if it runs again; only by its number if the frontend does not provide an id."""
    parent = shell().get_parent() if hasattr(shell(), "get_parent") else {}
    return str(parent.get("metadata", {}).get("cellId") or cell_number())
