"""Notebooks that set something up at their top level, which an answer then needs: a table, a registry, a file.

Each is written around an answer and changes nothing of what it does: `first_NAME` is the answer under another name, and
NAME, the function that is checked, finds it by way of what was set up.
"""

import ast
import copy
import random

from synthetic.answers import Known
from synthetic.notebooks import Notebook, answer_cells, code, lines, place

_CALLS = "def {name}(*arguments):\n    return {found}(*arguments)"

# The cells above the answer, and how the answer finds its first version.
SETUPS: dict[str, tuple[tuple[str, ...], str]] = {
    "a table filled by a loop": (
        ("{first}", "TABLE_{name} = {{}}\nfor step in range(3):\n    TABLE_{name}[step] = first_{name}"),
        "TABLE_{name}[2]",
    ),
    "a list that is appended to": (
        ("{first}", "LIST_{name} = []", "LIST_{name}.append(None)\nLIST_{name}.append(first_{name})"),
        "LIST_{name}[1]",
    ),
    "a dictionary that is updated": (
        ("{first}", "OPTIONS_{name} = dict(use=None)\nOPTIONS_{name}.update(use=first_{name})"),
        "OPTIONS_{name}['use']",
    ),
    "a number found by a while": (
        ("{first}", "number_{name} = 0\nwhile number_{name} ** 2 < 8:\n    number_{name} += 1"),
        "(None, None, None, first_{name})[number_{name}]",
    ),
    "a value named in a print": (("{first}", "print(chosen_{name} := first_{name})"), "chosen_{name}"),
    "a value set in a with": (
        ("{first}", "import torch\n\nwith torch.no_grad():\n    CHOSEN_{name} = [first_{name}]\n    print('done')"),
        "CHOSEN_{name}[0]",
    ),
    "a call that sets a global": (
        (
            "{first}",
            "def set_up_{name}(use):\n    global CHOSEN_{name}\n    CHOSEN_{name} = use",
            "set_up_{name}(first_{name})",
        ),
        "CHOSEN_{name}",
    ),
    "a registry filled by a decorator": (
        (
            "KNOWN_{name} = {{}}\n\ndef keep_{name}(function):\n    KNOWN_{name}['it'] = function\n    return None",
            "{first}",
            "@keep_{name}\ndef second_{name}(*arguments):\n    return first_{name}(*arguments)",
        ),
        "KNOWN_{name}['it']",
    ),
    "a form for each type": (
        (
            "{first}",
            "import functools\n\n@functools.singledispatch\ndef form_{name}(key):\n    raise TypeError(key)",
            "@form_{name}.register\ndef _(key: int):\n    return first_{name}",
        ),
        "form_{name}(1)",
    ),
    "a method added to tensors": (
        ("import torch\n\n{first}", "torch.Tensor.mine_{name} = staticmethod(first_{name})"),
        "__import__('torch').Tensor.mine_{name}",
    ),
    "setattr on an object": (
        (
            "{first}",
            "class Options_{name}:\n    use = None",
            "setattr(Options_{name}, 'use', staticmethod(first_{name}))",
        ),
        "Options_{name}.use",
    ),
    "another default dtype for a while": (
        (
            "import torch\n\ntorch.set_default_dtype(torch.float64)",
            "DTYPE_{name} = torch.tensor(0.5).dtype",
            "torch.set_default_dtype(torch.float32)",
            "{first}",
        ),
        "{{torch.float64: first_{name}}}[DTYPE_{name}]",
    ),
    "a module written by a cell": (
        ("%%writefile written_{name}.py\n{first}", "from written_{name} import first_{name} as read_{name}"),
        "read_{name}",
    ),
    "a value that is awaited": (
        ("{first}", "async def fetch_{name}():\n    return first_{name}", "AWAITED_{name} = await fetch_{name}()"),
        "AWAITED_{name}",
    ),
}


def set_up(notebook: Notebook, answers: dict[str, Known], ways: list[str], rng: random.Random) -> None:
    """Write answers into their cells and, above each, what it needs: the ways are taken in turn."""
    cells = answer_cells(notebook)
    for number, (exercise, answer) in enumerate(answers.items()):
        above, found = SETUPS[ways[number % len(ways)]]
        words = {"name": answer.node.name, "first": _first(answer)}
        cell = cells[exercise]
        cell["source"] = lines(_CALLS.format(found=found.format(**words), **words))
        at = place(notebook, cell)
        notebook["cells"][at:at] = [code(text.format(**words), rng) for text in above]


def _first(answer: Known) -> str:
    """The answer under another name, with what it needs in front."""
    node = copy.deepcopy(answer.node)
    node.name = f"first_{answer.node.name}"
    return "\n\n".join([*answer.needs, ast.unparse(ast.fix_missing_locations(node))])
