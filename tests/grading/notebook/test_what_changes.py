"""What a statement changes, by hand: generous where a name may be filled, and deaf to plots, prints and experiments."""

import ast
import re

import pytest
from written_notebooks import CHECK, notebook

from course_lib.grading.notebook.changes.effects import Effects
from course_lib.grading.notebook.program import load

ABOVE = """
import random
import torch
import matplotlib.pyplot as plt
import os, shutil, json
from pathlib import Path
from torch import Tensor as T
from course_lib.sparsity import patterns

def helper(x): return x
def fill(table, n=3): table[0] = n
def fill_twice(other): fill(other)
def set_up(n):
    global K
    K = n
def run(seed):
    torch.manual_seed(seed)
    plt.plot(seed)
    set_up(seed)
def register(f): KNOWN[f.__name__] = f
class Box:
    def put(self, x): self.x = x
    def get(self): return 3
    def give(self, x): x.append(1)
def answer(x): MEMO[x] = x
def save_all(x): x.to_csv('all.csv')
log = open('log', 'w')
A = B
"""
CHANGES = {
    "V[0] = 1": "V",
    "V.x.y = 1": "V",
    "V += 1": "V",
    "del V[0]": "V",
    "vars(V)['x'] = 1": "V",
    "V.append(1)": "V",
    "V.go()": "V",
    "W = V.pop()": "V",
    "W = [V.add(i) for i in range(3)]": "V",
    "list(map(V.append, range(3)))": "V",
    "A.append(1)": "A B",
    "setattr(V, 'x', 1)": "V",
    "setattr(torch.Tensor, 'x', 1)": "torch",
    "torch.Tensor.x = 1": "torch",
    "T.x = 1": "T",
    "torch.manual_seed(0)": "torch",
    "random.seed(0)": "random",
    "random.shuffle(V)": "V",
    "list.append(V, 3)": "V",
    "dict.update(V, x=3)": "V",
    "object.__setattr__(V, 'x', 3)": "V",
    "Box.put(V, 3)": "Box V",
    "Box.known.append(3)": "Box",
    "Box.from_text('x')": "Box",
    "torch.fromkeys(V)": "V",
    "torch.relu_(V)": "V",
    "torch.norm(V)": "V",  # whose value nobody takes
    "fill(V)": "V",
    "W = fill(table=V)": "V",
    "fill_twice(V)": "V",
    "set_up(3)": "K",
    "W = set_up(3)": "K",
    "run(3)": "K",
    "list(map(set_up, [1]))": "K",
    "@register\ndef f(): pass": "KNOWN",
    "@V.add\ndef f(): pass": "V",
    "b.put(1)": "b",
    "b.give(V)": "b V",
    "for v in V:\n    v.x = 1": "V v",
    "for v in (V, U):\n    v.append(1)": "U V v",
    "with V as v:\n    v.append(1)": "V v",
    "torch.save(V, 'x')": "% %?",
    "torch.save(V, 'x.pt')": "% %x.pt",
    "os.makedirs('x', exist_ok=True)": "% %?",
    "list(map(os.makedirs, ['x', 'y']))": "% %?",
    "open('x', 'w').write('')": "% %?",
    "open('x.txt', mode='a')": "% %x.txt",
    "json.dump(V, open('x.json', 'w'))": "% %x.json",
    "Path('x').write_text('')": "% %?",
    "Path('x').open('w').write('')": "% %?",
    "[Path(x).mkdir() for x in 'ab']": "% %?",
    "shutil.copy('a.txt', 'b.txt')": "% %? %a.txt %b.txt",
    "log.write('x')": "% %? log",
    "print(V, file=log)": "% %?",
    "save_all(V)": "% %all.csv V",
    "while True:\n    torch.set_default_dtype(torch.float64)": "torch",
}
NOTHING = [
    "helper(V)",
    "print(V)",
    "print(V.sum())",
    "W = helper(V)",
    "W = V.sum()",
    "W = sorted(V)",
    "plt.plot(V)",
    "plt.show()",
    "patterns.go(V)",
    "torch.set_num_threads(1)",
    "for i in range(3):\n    torch.manual_seed(i)\n    print(helper(V))",
    "answer(V)",
    "run",
    "f = lambda: V.append(1)",
    "def f(): V.append(1)",
    "assert V",
    "W = open('x.txt').read()",
    "W = Path('x').read_text()",
    "W = 'a'.replace('b', 'c')",
    "W = dict.fromkeys('ab', 0)",
    "dict.fromkeys('ab', 0)",
    "W = [int.from_bytes(b'a') for _ in range(3)]",
]


def changed(statement):
    known = Effects([*ast.parse(ABOVE).body, ast.parse(statement).body[0]], {"answer"})
    return set(known.changes(ast.parse(statement).body[0]))


@pytest.mark.parametrize("statement", CHANGES)
def test_what_a_statement_changes(statement):
    assert changed(statement) == set(CHANGES[statement].split())


@pytest.mark.parametrize("statement", NOTHING)
def test_what_changes_nothing(statement):
    assert changed(statement) == set()


FROM_A_TYPE = "W = dict.fromkeys('ab', 0)"
REBOUND = {
    "an assignment": "dict = Box",
    "a class": "class dict(Box): pass",
    "a function": "def dict(): return Box()",
    "an import": "from collections import OrderedDict as dict",
    "a star": "from collections import *",
    "a parameter": "def g(dict): return dict.copy()",
    "a loop": "for dict in [Box]: pass",
    "exec": "exec('dict = Box')",
    "globals": "globals()['dict'] = Box",
    "builtins": "import builtins\nbuiltins.dict = Box",
    "from builtins": "from builtins import __dict__ as names",
    "__builtins__": "__builtins__.dict = Box",
}
USES = ("dict.go()", "dict.known += [1]", "W = dict.fromkeys(V)\nW['a'] = 1")


def changed_after(*statements):
    """What the last statement changes."""
    parsed = ast.parse("\n".join([ABOVE, *statements])).body
    return set(Effects(parsed, {"answer"}).changes(parsed[-1]))


def test_a_value_made_by_a_method_of_a_builtin_type_shares_nothing_with_the_type():
    for change in ("W['a'] += 1", "W.update(c=1)", "for k in W:\n    W[k] = 1"):
        assert "W" in (changed := changed_after(FROM_A_TYPE, change))
        assert "dict" not in changed
    assert "dict" not in changed_after("Table = dict", "W = Table.fromkeys('ab', 0)", "W['a'] += 1")
    assert "V" in changed_after("W = dict.fromkeys('ab', V)", "W['a'].append(1)")
    assert "U" not in changed_after("U = dict.fromkeys('ab')", FROM_A_TYPE, "W['a'] += 1")


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("rebound", REBOUND)
def test_a_type_whose_name_the_notebook_may_bind_is_a_value_like_any_other(rebound, use):
    ordinary = re.sub(r"\bdict\b", "thing", f"{REBOUND[rebound]}\n{use}")
    assert {name.replace("thing", "dict") for name in changed_after(ordinary)} == changed_after(REBOUND[rebound], use)


def test_a_value_that_an_object_of_the_notebook_makes_shares_with_the_object():
    assert {"W", "b"} <= changed_after("b = Box()", "W = b.fromkeys('ab')", "W['a'] = 1")
    assert {"W", "V"} <= changed_after("class dict: pass", "W = dict.fromkeys(V)", "W['a'] = 1")


SHOWS = """
import timeit
def experiment(seed):
    torch.manual_seed(seed)
    return wanda_score(torch.randn(3, 3), torch.randn(3, 3)).sum()
results = [experiment(seed) for seed in range(10**9)]
for seed in range(10**9):
    torch.manual_seed(seed)
    print(experiment(seed))
def time_it(function, *arguments):
    return function(*arguments)
time_it(helper, SCALE); time_it(wanda_score, SCALE)
fig, ax = plt.subplots(); ax.plot(SCALE)
plt.hist(SCALE); plt.show(); print(SCALE); display(SCALE)
timeit.timeit(lambda: helper(SCALE))
losses = []; losses.append(helper(SCALE))
while True: losses.append(1)
with open("log.txt", "w") as file: file.write(str(SCALE))
raise SystemExit
"""


def test_plots_prints_and_experiments_are_not_needed_because_they_read_what_is():
    needed = ["def helper(x):\n    return x", "SCALE = [1.0]"]
    answer = "def wanda_score(weight, inputs):\n    return helper(weight) * inputs * SCALE[0]"
    imports = "import torch\nimport matplotlib.pyplot as plt"
    made = load(notebook(imports, *needed, answer, SHOWS, CHECK)).program("wanda.score", "wanda_score")
    assert [statement.source for statement in made.statements] == [*needed, answer]
    assert made.notes == ()
