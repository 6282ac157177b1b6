"""The slice: what a function needs is run, as it stood when the function was checked, and nothing else is."""

import decimal
import logging
import sys

import pytest
from written_notebooks import BOOM, CHECK, RIGHT, STUB, answer, called, notebook, run

from course_lib.grading.notebook.program import load
from course_lib.grading.notebook.slices import MOST_STEPS

USES = "def wanda_score(weight, inputs):\n    return helper(weight, inputs)"


def wanda_score(returned):
    return f"def wanda_score(weight, inputs):\n    return {returned}"


HELPER = "def helper(a, b):\n    return a * b"


def program(*cells):
    return load(notebook(*cells)).program("wanda.score", "wanda_score")


# What is not needed does not run ---------------------------------------------------------------------------------

EXPERIMENTS = {
    "an expression": BOOM.replace("raise ", "(") + ").explode()",
    "a raise": BOOM,
    "a call": "1 / 0",
    "a loop": "for weight in [1]:\n    1 / 0",
    "while": "while True:\n    1 / 0",
    "with": "with open('/nowhere/at/all') as inputs:\n    pass",
    "an assignment": "unused = 1 / 0",
    "an assignment to the name of a parameter": "weight = 1 / 0\ninputs = weight",
    "an import": "import no_such_package_at_all",
    "one import of several": "import math, no_such_package_at_all",
    "a definition": "def unused(x=1 / 0):\n    pass",
    "a class": "class Unused:\n    x = 1 / 0",
    "an if": "if 1 / 0:\n    unused = 1",
    "a decorator": "@no_such_name\ndef unused():\n    pass",
    "a deletion": "del wanda_score",
    "an assertion": "assert False",
    "an assigned name in a comprehension": "[weight for weight in 1 / 0]",
    "a named expression": "(weight := 1 / 0)",
    "a loop over the helper": "for helper in [None]:\n    pass",
    "awaited": "await something()",
    "awaited for a check": 'check("wanda.other", await something())',
    "awaited for a name": "thing = await something()",
    "a match": "match 1 / 0:\n    case _:\n        pass",
}


@pytest.mark.parametrize("where", ["above", "below"])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_does_not_run(name, where):
    cells = [HELPER, answer(USES), CHECK]
    cells.insert(0 if where == "above" else 3, EXPERIMENTS[name])
    assert called(program(*cells), 3, 4) == 12


def test_only_what_is_needed_is_taken():
    made = program(
        "import math\nimport random", "K = 2\nL = 3", HELPER, answer(USES), "def other():\n    return K", CHECK
    )
    assert [each.source for each in made.statements] == [HELPER, USES]


def test_a_parameter_is_not_the_variable_of_the_same_name():
    source = "def wanda_score(model, scale):\n    rows = [scale for scale in [model * scale]]\n    return rows[0]"
    made = program("model = load()\nscale = model.scale\nrows = 1", answer(source), CHECK)
    assert len(made.statements) == 1


# What is needed runs ---------------------------------------------------------------------------------------------

NEEDED = {
    "a helper in another cell": (HELPER, USES),
    "a helper further down": (USES, HELPER),
    "a helper of a helper": ("def one(a):\n    return a", HELPER.replace("a * b", "one(a) * one(b)"), USES),
    "a helper that is a lambda": ("helper = lambda a, b: a * b", USES),
    "a helper that is an object": ("class H:\n    def __call__(s, a, b):\n        return a * b", "helper = H()", USES),
    "a class": ("class K:\n    one = 1", wanda_score("K.one * weight * inputs")),
    "a base class": (
        "class B:\n    one = 1",
        "class helper(B):\n    def __new__(c, a, b):\n        return a * b * c.one",
        USES,
    ),
    "a constant": ("K = 1", wanda_score("K * weight * inputs")),
    "two at once": ("K, (L, *M) = 1, (1, 2)", wanda_score("K * L * weight * inputs")),
    "on one line": ("K = 1; L = 'ü'; M = 1 / 0", wanda_score("K * len(L) * weight * inputs")),
    "a default": ("K = 1", "def wanda_score(weight, inputs, k=K):\n    return k * weight * inputs"),
    "a keyword default": ("K = 1", "def wanda_score(weight, inputs, *, k=K):\n    return k * weight * inputs"),
    "an annotation": (
        "from torch import Tensor as T",
        "def wanda_score(weight: T, inputs) -> T:\n    return weight * inputs",
    ),
    "a decorator": (
        "import functools",
        "def loud(f):\n    @functools.wraps(f)\n    def g(*a):\n        return f(*a)\n    return g",
        "@loud\ndef wanda_score(weight, inputs):\n    return weight * inputs",
    ),
    "a wrapper made by hand": (HELPER, USES, "wanda_score = (lambda f: lambda *a: f(*a))(wanda_score)"),
    "a closure": (
        HELPER,
        "def make():\n    k = helper(1, 1)\n    def f(w, x):\n        return k * w * x\n    return f",
        "wanda_score = make()",
    ),
    "a subscript": ("T = {}", "T['k'] = 1", wanda_score("T['k'] * weight * inputs")),
    "an attribute": ("class C:\n    pass", "C.k = 1", wanda_score("C.k * weight * inputs")),
    "an augmented assignment": ("K = 0", "K += 1", wanda_score("K * weight * inputs")),
    "an attribute of its own": (wanda_score("wanda_score.k * weight * inputs"), "wanda_score.k = 1"),
    "a global that it sets": (
        "N = 0",
        "def wanda_score(weight, inputs):\n    global N\n    N += 1\n    return N * weight * inputs",
    ),
    "a star import": ("from math import *", wanda_score("cos(0) * weight * inputs")),
    "an import that is tried": (
        "try:\n    import no_such_package as helper\nexcept ImportError:\n    print(1 / 0)\n    "
        "def helper(a, b):\n        return a * b",
        USES,
    ),
    "an if": (
        "if True:\n    %time\n    print(1 / 0)\n    helper = lambda a, b: a * b\nelse:\n    helper = None",
        USES,
    ),
    "an import and a definition in a with": (
        "with open('/nowhere/at/all'):\n    print(1 / 0)\n    import math as m\n    def helper(a, b):\n"
        "        return m.prod((a, b))",
        USES,
    ),
    "a submodule": ("import os.path", "import os", wanda_score("len(os.path.basename('a')) * weight * inputs")),
    "itself": ("def wanda_score(w, x):\n    return 0 if x == 0 else w + wanda_score(w, x - 1)",),
    "a pair that call each other": (
        "def even(n):\n    return n == 0 or odd(n - 1)\ndef odd(n):\n    return n > 0 and even(n - 1)",
        wanda_score("even(2) * weight * inputs"),
    ),
    "a helper used at once, further down": ("K = helper(1, 1)", HELPER, wanda_score("K * weight * inputs")),
    "what that helper reads, further down": (
        "K = f()",
        "def f():\n    return ONE",
        "ONE = 1",
        wanda_score("K * weight * inputs"),
    ),
    "a table filled by a helper": (
        "def fill(n):\n    return {i: i for i in range(n)}",
        "T = fill(2)",
        wanda_score("T[1] * weight * inputs"),
    ),
    "a comprehension, at once": ("k = 1", "T = [k for _ in range(2)]", "k = 5", wanda_score("T[0] * weight * inputs")),
    "a generator, later": ("T = (k for _ in range(2))", "k = 1", wanda_score("next(T) * weight * inputs")),
    "whether it is on Colab": (
        "COLAB = 'google.colab' in str(get_ipython())",
        wanda_score("(0 if COLAB else 1) * weight * inputs"),
    ),
    "what a notebook shows": ("from x import y", wanda_score("display(weight) or weight * inputs")),
    "another exercise's function, below its stub": (
        "def helper(a, b):\n    raise NotImplementedError('Exercise')",
        HELPER,
        USES,
    ),
    "another exercise's function, above its stub": (
        HELPER,
        "def helper(a, b):\n    raise NotImplementedError('Exercise')",
        USES,
    ),
    "the function given as a default to a helper": (
        "def twice(w, f=None):\n    return f(w, 4) if f else w",
        "def wanda_score(w, x):\n    return twice(w * x)",
        "wanda_score.k = 1",
    ),
}


@pytest.mark.parametrize("name", NEEDED)
def test_what_is_needed_runs(name):
    cells = NEEDED[name]
    assert called(program(*cells), 3, 4) == 12
    assert called(program(*cells, CHECK, BOOM), 3, 4) == 12


@pytest.mark.parametrize(
    "imports", ["from math import no_such_name, cos", "import no_such_package_at_all, math\ncos = math.cos"]
)
def test_a_package_that_is_not_there_costs_only_itself(imports):
    made = program(imports, wanda_score("cos(0) * weight * inputs"))
    assert called(made, 3, 4) == 12


def test_two_modules_of_a_package_are_both_imported():
    made = program("import xml.dom", "import xml.sax", wanda_score("xml.dom and xml.sax"))
    assert [each.source for each in made.statements[:2]] == ["import xml.dom", "import xml.sax"]


def test_the_last_binding_before_a_statement_is_what_it_reads():
    cells = ("k = 1", "a = k", "k = 5", "def wanda_score(w, x):\n    return (a, k)")
    assert called(program(*cells), 0, 0) == (1, 5)
    assert called(program(*cells[:2], cells[3], "k = 5"), 0, 0) == (1, 5)


def test_what_stood_there_at_the_check_counts_and_not_what_came_after():
    """Notebooks use their names again; the check that the student saw is what was handed in."""
    made = program("k = 1", "def wanda_score(w, x):\n    return k * w * x", CHECK, "k = 7", "k += 1")
    assert called(made, 3, 4) == 12
    again = program(HELPER, USES, CHECK, HELPER.replace("*", "+"))
    assert called(again, 3, 4) == 12
    assert again.notes == ("helper is defined again further down; grading used the value that it had at the check.",)


def test_the_same_helper_pasted_again_is_no_news():
    assert program(HELPER, USES, CHECK, HELPER).notes == ()


def test_a_second_check_further_down_counts():
    made = program(HELPER.replace("*", "+"), USES, CHECK, HELPER, CHECK)
    assert called(made, 3, 4) == 12
    assert made.notes == ()


def test_without_a_check_the_whole_notebook_counts():
    assert called(program(HELPER.replace("*", "+"), USES, HELPER), 3, 4) == 12


def test_without_a_check_a_helper_beside_the_function_is_its_own():
    """Cells changed places, so that the check stands above; each brings a helper of the same name."""
    made = program(CHECK, "def other(a):\n    return a", HELPER + "\n" + USES, HELPER.replace("*", "-"))
    assert called(made, 3, 4) == 12


def test_with_a_check_below_the_last_helper_above_it_counts_wherever_that_stands():
    made = program(HELPER.replace("*", "-") + "\n" + USES, HELPER, CHECK)
    assert called(made, 3, 4) == 12


def test_after_all_statements_the_name_is_bound_to_the_chosen_definition():
    """A stub further down, or a wrapper that is no function, does not take the name away."""
    right = "def wanda_score(w, x):\n    return w * x * CALLS[0]"
    made = program(right, "def register(f):\n    return [1]", "CALLS = register(wanda_score)", STUB)
    assert called(made, 3, 4) == 12
    both = "CALLS = [1]\nif CALLS:\n    wanda_score = lambda w, x: OTHER(w, x)"
    assert called(program(right, "OTHER = wanda_score", both), 3, 4) == 12


def test_a_default_that_calls_the_function_itself_does_not_go_round_in_circles():
    made = program("K = wanda_score", "def wanda_score(w, x, k=K):\n    return w * x")
    assert any(each.source.startswith("def wanda_score") for each in made.statements)


# What lies on the disk ------------------------------------------------------------------------------------------------

READS_ONE = wanda_score("weight * inputs * int(open('folder/one').read())")
ON_DISK = (
    "import json, os, pathlib, shutil\nfrom os import makedirs\nfrom pathlib import Path\nimport numpy as np, torch"
)
WRITTEN = {
    "makedirs": "os.makedirs('folder', exist_ok=True)\nopen('folder/one', 'w').write('1')",
    "makedirs by itself": "makedirs('folder')\nwith open('folder/one', 'w') as file:\n    file.write('1')",
    "where it is not": "if not os.path.exists('folder'):\n    os.mkdir('folder')\nPath('folder/one').write_text('1')",
    "tried": "try:\n    os.mkdir('folder')\nexcept OSError:\n    pass\nPath('folder/one').write_text('1')",
    "mkdir of a path": "Path('folder').mkdir()\n(Path('folder') / 'one').write_text('1')",
    "mkdir of a module's path": "pathlib.Path('folder').mkdir()\npathlib.Path('folder', 'one').write_bytes(b'1')",
    "many folders": "for name in ['folder', 'other']:\n    Path(name).mkdir()\nPath('folder/one').write_text('1')",
    "mapped": "list(map(os.makedirs, ['folder', 'other']))\nPath('folder/one').write_text('1')",
    "by a function": "def set_up(text):\n    os.mkdir('folder')\n    Path('folder/one').write_text(text)\nset_up('1')",
    "opened by a path": "Path('folder').mkdir()\nPath('folder/one').open('w').write('1')",
    "a name for it": "os.mkdir('folder')\nTO = 'folder/' + 'one'\nwith open(TO, 'w') as file:\n    file.write('1')",
    "line by line": "os.mkdir('folder')\nlog = open('folder/one', 'w')\nlog.write('1')\nlog.close()",
    "printed": "os.mkdir('folder')\nlog = open('folder/one', 'w')\nprint(1, file=log)\nlog.close()",
    "dumped": "os.mkdir('folder')\nwith open('folder/one', 'w') as file:\n    json.dump(1, file)",
    "dumped at once": "os.mkdir('folder')\nfile = open('folder/one', 'w')\njson.dump(1, file)\nfile.close()",
    "copied": "Path('two').write_text('1')\nos.mkdir('folder')\nshutil.copy('two', 'folder/one')",
    "moved": "os.mkdir('other')\nPath('other/one').write_text('1')\nshutil.move('other', 'folder')",
    "renamed": "os.mkdir('other')\nPath('other/one').write_text('1')\nPath('other').rename('folder')",
    "of arrays": "os.mkdir('folder')\nnp.savetxt('folder/one', [1], fmt='%d')",
}


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("written", WRITTEN)
def test_what_a_function_reads_from_the_disk_is_put_there(written, elsewhere):
    made = program(ON_DISK, WRITTEN[written], READS_ONE, CHECK, "shutil.rmtree('folder')")
    assert called(made, 3, 4) == 12
    assert made.notes == ()


@pytest.mark.parametrize(
    ("path", "imports"),
    [
        ("written_below_src.py", "from written_below_src import K"),
        ("written_package/inner.py", "import written_package.inner\nK = written_package.inner.K"),
    ],
)
def test_a_module_in_a_folder_on_the_path_is_written_before_it_is_imported(path, imports, elsewhere, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path[:])
    made = program(
        f"import os\nos.makedirs(os.path.dirname('src/{path}'))",
        f"%%writefile src/{path}\nK = 1",
        f"import sys\nsys.path.append('src')\n{imports}",
        wanda_score("K * weight * inputs"),
        CHECK,
    )
    assert called(made, 3, 4) == 12
    assert made.notes == ()


SETTINGS = {
    "a context": ("import decimal\ndecimal.getcontext().prec = 50", "12 * (decimal.getcontext().prec == 50)"),
    "a context, by the name of its function": (
        "from decimal import Decimal, getcontext\ngetcontext().prec = 3",
        "12 * (str(Decimal(1) / 3) == '0.333')",
    ),
    "a log": (
        "import logging\nlogging.basicConfig(filename='run.log', level=logging.INFO, force=True)",
        "logging.info('x') or 12 * ('x' in open('run.log').read())",
    ),
    "a shelf": ("import shelve\nwith shelve.open('k') as s:\n    s['k'] = 12", "shelve.open('k')['k']"),
    "a shelf with a name": ("import shelve\ns = shelve.open('k')\ns['k'] = 12\ns.close()", "shelve.open('k')['k']"),
    "a file of settings": (
        "import configparser\nc = configparser.ConfigParser()\nc['a'] = {'k': '12'}\n"
        "with open('k.ini', 'w') as f:\n    c.write(f)\nd = configparser.ConfigParser()",
        "d.read('k.ini') and int(d['a']['k'])",
    ),
    "a database": (
        "import sqlite3\ndb = sqlite3.connect('k.db')\ndb.execute('create table t (k)')\n"
        "db.execute('insert into t values (12)')\ndb.commit()",
        "sqlite3.connect('k.db').execute('select k from t').fetchone()[0]",
    ),
}


@pytest.fixture
def settings_stay(elsewhere):
    with decimal.localcontext():
        handlers, level = logging.root.handlers[:], logging.root.level
        logging.root.handlers[:] = []
        yield
        for handler in logging.root.handlers:
            handler.close()
        logging.root.handlers[:] = handlers
        logging.root.setLevel(level)


@pytest.mark.parametrize("name", SETTINGS)
def test_what_is_set_in_a_package_or_kept_in_a_file_is_set(name, settings_stay):
    above, returned = SETTINGS[name]
    made = program(above, wanda_score(returned), CHECK)
    assert called(made, 3, 4) == 12
    assert made.notes == ()


def test_a_log_on_the_screen_needs_nothing_of_the_disk(settings_stay):
    log = "import logging\nlogging.basicConfig(level=30)"
    made = program("!mkdir plots", log, wanda_score("logging.debug('x') or weight * inputs"), CHECK)
    assert called(made, 3, 4) == 12
    assert made.notes == ()


ENVIRONMENT = ["%env K=1", "%env K 1", "%set_env K 1", "%set_env K=1", "if True:\n    %env K = 1"]


@pytest.mark.parametrize("magic", ENVIRONMENT)
def test_a_magic_that_sets_the_environment_is_run(magic, monkeypatch):
    monkeypatch.setenv("K", "7")
    made = program(magic, "import os", wanda_score("weight * inputs * int(os.environ['K'])"), CHECK)
    assert called(made, 3, 4) == 12
    assert made.notes == ()


@pytest.mark.parametrize("magic", ["%env", "%env K", "%env HOME"])
def test_a_magic_that_shows_the_environment_changes_nothing(magic):
    made = program(magic, "import os", wanda_score("weight * inputs * len(os.environ)"), CHECK)
    assert len(made.statements) == 2
    assert made.notes == ()


def test_a_magic_that_takes_its_value_from_elsewhere_is_not_run_and_said():
    made = program("%set_env K $HOME", "import os", wanda_score("weight * inputs * len(os.environ)"), CHECK)
    assert made.notes == (
        "the environment is needed, but `%set_env K $HOME` in cell 1 is not run: grading runs no shell and no magics.",
    )


READERS = {
    "a table of arrays": ("np.save('k', np.ones(1))", "weight * inputs * int(np.load('k.npy')[0])"),
    "tensors": ("torch.save(torch.ones(1), 'k')", "weight * inputs * int(torch.load('k')[0])"),
    "a folder to write into": ("os.makedirs('plots', exist_ok=True)", "open('plots/log.txt', 'a') and weight * inputs"),
    "the environment": ("os.environ['K'] = '1'\nfrom os import getenv", "weight * inputs * int(getenv('K'))"),
    "where it is": ("Path('k').touch()", "weight * inputs * os.path.exists('k')"),
    "a folder to work in": ("os.mkdir('k')\nos.chdir('k')", "weight * inputs * os.getcwd().endswith('k')"),
    "one file of several": (
        "for i in range(3):\n    Path(f'{i}.txt').write_text(str(i))",
        "12 * int(open('1.txt').read())",
    ),
}


@pytest.mark.parametrize("reader", READERS)
def test_what_is_set_up_on_the_disk_is_there(reader, elsewhere):
    set_up, returned = READERS[reader]
    assert called(program(ON_DISK, set_up, wanda_score(returned), CHECK), 3, 4) == 12


def test_what_is_written_is_not_needed_by_a_function_that_reads_nothing_or_another_file():
    writes = "import os, torch\nos.makedirs('plots')\ntorch.save(1 / 0, 'x')\nopen('y.txt', 'w').write(1 / 0)"
    assert [each.source for each in program(writes, HELPER, USES, CHECK).statements] == [HELPER, USES]
    named = program("import torch\ntorch.save(1 / 0, 'x.pt')", wanda_score("open('z.txt')"), CHECK)
    assert len(named.statements) == 1


def test_a_file_that_cannot_be_written_keeps_nothing_beside_it_from_being_run():
    block = "if True:\n    open('/nowhere/at/all', 'w').write('')\n    K = 1"
    assert called(program(block, wanda_score("K * weight * inputs"), CHECK), 3, 4) == 12


NOT_WRITTEN = {
    "!mkdir -p plots": "grading runs no shell and no magics.",
    "%mkdir plots": "grading runs no shell and no magics.",
    "!echo 1 > plots": "grading runs no shell and no magics.",
    "%%bash\nmkdir plots": "grading runs no shell and no magics.",
    "import os\nos.system('mkdir plots')": "grading starts no other programs.",
    "import subprocess as s\ns.run(['mkdir', 'plots'])": "grading starts no other programs.",
    "from course_lib.models import load_model\nimport torch\ntorch.save(load_model(), 'x')": (
        "grading loads no model, data or experiment (load_model)."
    ),
}


@pytest.mark.parametrize("statement", NOT_WRITTEN)
def test_what_is_not_written_is_said_where_files_are_read(statement):
    made = program(statement, wanda_score("open('plots/log.txt', 'a') and weight * inputs"), CHECK)
    first = statement.split("\n")[0] if statement[0] in "!%" else statement.split("\n")[-1]
    assert made.notes == (
        f"what lies on the disk is needed, but `{first}` in cell 1 is not run: {NOT_WRITTEN[statement]}",
    )
    assert program(statement, RIGHT, CHECK).notes == ()
    assert program("!pip install something", wanda_score("open('x')"), CHECK).notes == ()


# Names that Python provides, and names that are deleted -----------------------------------------------------------

USES_PYTHONS_OWN = wanda_score("max(weight, 1) * max(inputs, 1)")
REBOUND = [
    "max = 0",
    "max: int = 0",
    "max, other = 0, 0",
    "max = 0\nfor x in [1]:\n    max += x",
    "for max in [0]:\n    pass",
    "while not (max := 1):\n    pass",
    "def max(a, b):\n    return 0",
    "max = lambda a, b: 0",
    "class max:\n    pass",
    "import math as max",
    "from math import cos as max",
    "with open('/dev/null') as max:\n    other = max.read()",
    "print(max := 3)",
    "numbers = [max := 3 for _ in [1]]",
    "match [1]:\n    case [max, *rest]:\n        other = 1",
    "def set_up():\n    global max\n    max = 0\nset_up()",
    "class A:\n    global max\n    max = 0",
    "exec('max = 0')",
    "globals()['max'] = 0",
    "if True:\n    max = 0",
]
DELETIONS = [
    "del max",
    "del max, K",
    "del (K, [max])",
    "if 'max' in globals():\n    del max",
    "try:\n    del max, nothing_of_that_name\nexcept NameError:\n    pass",
    "def clean():\n    global max\n    del max\nclean()",
    "del globals()['max']",
    "globals().pop('max', None)",
    "%xdel max",
    "%xdel -n max",
    "%reset_selective -f ^max$",
]


@pytest.mark.parametrize("rebound", REBOUND)
def test_a_name_of_pythons_own_that_is_bound_below_the_check_is_another_use_of_it(rebound):
    made = program("K = max(1, 0)", USES_PYTHONS_OWN.replace("max", "K * max", 1), CHECK, rebound)
    assert called(made, 3, 4) == 12
    assert made.notes == ()


@pytest.mark.parametrize("rebound", REBOUND)
def test_del_ends_a_binding_of_any_kind(rebound):
    made = program(f"{rebound}\ndel max", USES_PYTHONS_OWN, CHECK)
    assert called(made, 3, 4) == 12
    assert made.notes == ()


@pytest.mark.parametrize("deletion", DELETIONS)
@pytest.mark.parametrize("uses", [USES_PYTHONS_OWN, USES_PYTHONS_OWN.replace("max", "TOTAL * max", 1)])
def test_del_ends_a_binding_however_it_is_written(deletion, uses):
    """Also where the value was needed in between, so that the binding and its end both run."""
    made = program("K, max = 1, 0", "TOTAL = 1 + max", deletion, uses, CHECK)
    assert called(made, 3, 4) == 12


def test_a_magic_that_deletes_names_by_a_pattern_is_said():
    made = program("max = 0", "%reset_selective -f max|other", USES_PYTHONS_OWN, CHECK)
    assert made.notes == (
        "max is needed, but `%reset_selective -f max|other` in cell 2 is not run: grading runs no shell and no magics.",
    )
    assert program("%reset_selective -f max|other", HELPER, USES, CHECK).notes == ()


@pytest.mark.parametrize("restored", ["from builtins import max", "import builtins\nmax = builtins.max"])
def test_a_name_of_pythons_own_may_be_given_back(restored):
    made = program("max = 0\nfor x in [1, 2]:\n    max += x", restored, USES_PYTHONS_OWN, CHECK)
    assert called(made, 3, 4) == 12
    assert not [each.source for each in made.statements if "+=" in each.source]


def test_a_deletion_runs_only_where_its_binding_does():
    made = program("max = 0\ndel max", HELPER, USES_PYTHONS_OWN, CHECK)
    assert [each.source for each in made.statements] == [USES_PYTHONS_OWN]


LOADED = "from course_lib.models import load_model\nmodel, tokenizer = load_model()"
USES_A_TYPE = wanda_score("dict(a=weight * inputs)['a']")


def test_a_demonstration_with_a_method_of_a_type_is_not_needed_where_an_answer_uses_the_type():
    demonstration = "losses = dict.fromkeys('ab', 0)\nlosses['a'] = 1\nlosses['b'] = model(3)"
    made = program(LOADED, demonstration, USES_A_TYPE, CHECK)
    assert [each.source for each in made.statements] == [USES_A_TYPE]
    assert made.notes == ()
    assert called(made, 3, 4) == 12


def test_a_type_of_the_notebook_with_the_name_of_pythons_own_runs_with_what_changes_it():
    own = "class dict(dict):\n    factor = 1\n    def fromkeys(keys): dict.factor = 2"
    answer = wanda_score("dict.factor * weight * inputs")
    made = program(own, "dict.fromkeys('ab')", "other = list.copy([1])\nother.append(2)", answer, CHECK)
    assert called(made, 3, 4) == 24
    assert not [each.source for each in made.statements if "other" in each.source]


def test_what_the_kernel_provides_is_not_taken_from_further_down():
    made = program(wanda_score("display(weight) or weight * inputs"), CHECK, "display = 3")
    assert called(made, 3, 4) == 12


@pytest.mark.parametrize("deletion", ["del T[1]", "del T[0], T[1]", "del C.x", "del T[1], C.x"])
def test_deleting_a_part_changes_a_value_and_ends_no_name(deletion):
    table, holder = "T = {0: 0, 1: 1, 2: 2}", "class C:\n    x = 1"
    made = program(table, holder, deletion, wanda_score("weight * inputs if T and C else 0"), CHECK)
    assert called(made, 3, 4) == 12
    assert {"del T[1]", "del C.x"} & {each.source for each in made.statements}


def test_a_name_that_is_bound_again_after_its_deletion_has_its_new_value():
    assert called(program("k = 7", "del k", "k = 1", wanda_score("k * weight * inputs"), CHECK), 3, 4) == 12
    assert called(program("k = 7", "del k", wanda_score("k * weight * inputs"), CHECK, "k = 1"), 3, 4) == 12


def test_a_deletion_after_the_check_takes_nothing_away():
    for cells in ((HELPER, USES, CHECK, "del helper"), (HELPER, USES, "del helper")):  # with a check, and without
        assert called(program(*cells), 3, 4) == 12


def test_a_needed_name_that_is_deleted_above_the_check_is_said():
    made = program(HELPER, USES, "del helper", CHECK)
    assert made.notes == ("helper is used, but `del` in cell 3 deletes it before that.",)


@pytest.mark.parametrize("inner", ["[k for k in range(3)]", "{k: 1 for k in [2]}", "[1 for _, (k, j) in []]"])
def test_what_a_comprehension_binds_stays_in_it(inner):
    """From Python 3.12 on the table of symbols lists its variables among those around it."""
    made = program("k = 1", f"T = {inner}", wanda_score("k * weight * inputs if T is not None else 0"), CHECK)
    assert called(made, 3, 4) == 12


# What the student is told ----------------------------------------------------------------------------------------


def test_a_name_that_nothing_defines_is_said():
    made = program(USES)
    assert made.notes == ("helper is used, but nothing in the notebook defines it.",)
    assert callable(run(made)["wanda_score"])


def test_a_cell_that_does_not_parse_is_said_only_when_a_name_is_missing():
    assert program("def helper(a, b:\n    pass", USES).notes == (
        "helper is used, but nothing in the notebook defines it.",
        "cell 1 does not parse: line 1: '(' was never closed; what it defines is missing.",
    )
    assert program("def other(:", HELPER, USES).notes == ()


@pytest.mark.parametrize(("ours", "theirs"), [("local", "remote"), ("HEAD", "a1b2c3d")])
def test_the_marks_of_a_conflict_in_a_cell_are_called_so(ours, theirs):
    cell = f"def other():\n    pass\n<<<<<<< {ours}\n{HELPER}\n=======\n{HELPER}\n>>>>>>> {theirs}"
    assert (
        "cell 1 does not parse: line 3: it holds the marks of a Git conflict (<<<<<<<): "
        in program(cell, USES).notes[1]
    )


@pytest.mark.parametrize(
    "filled",
    [
        "for i in range(9):\n    T[i] = i",
        "T.update({3: 3})",
        "with open('/dev/null'):\n    T = {3: 3}",
        "def fill():\n    T[3] = 3\nfill()",
        "(T := {3: 3})",
    ],
)
def test_what_a_loop_or_a_call_sets_is_set(filled):
    made = program("T = {}", filled, wanda_score("T.get(weight) * inputs"), CHECK)
    assert called(made, 3, 4) == 12
    assert made.notes == ()


@pytest.mark.parametrize(
    "counted",
    [
        "for _ in range(3):\n    count += 1\n    T[count] = count",
        "if True:\n    count += 3\n    T[3] = count",
        "try:\n    count += 3\n    T[count] = 3\nfinally:\n    print('done')",
        "with open('/dev/null'):\n    count += 3\n    T[count] = 3",
        "while count < 3:\n    count += 1\n    T[count] = 3",
    ],
)
def test_a_counter_is_read_where_something_is_added_to_it(counted):
    made = program("T = {}\ncount = 0", counted, wanda_score("T.get(weight) * inputs"), CHECK)
    assert called(made, 3, 4) == 12
    assert made.notes == ()


SETS = "T = {}\ndef s1(k=3): T[3] = k"
BY_ANOTHER_NAME = {
    "a function": f"{SETS}\nstart = s1\nstart()",
    "a function, and its value taken": f"{SETS}\nstart = s1\nW = start()",
    "a function in a loop": f"{SETS}\nfor step in [s1]:\n    step()",
    "a table of functions": f"{SETS}\nSTEPS = {{'a': s1}}\nSTEPS['a']()",
    "a loop over a table of functions": f"{SETS}\nSTEPS = {{'a': s1}}\nfor step in STEPS.values():\n    step()",
    "a list of functions, one by one": f"{SETS}\nSTEPS = []\nSTEPS.append(s1)\nfor step in STEPS:\n    step()",
    "a table of functions, one by one": f"{SETS}\nSTEPS = {{}}\nSTEPS['a'] = s1\nSTEPS['a']()",
    "a function, called in a function": f"{SETS}\ndef set_up():\n    start = s1\n    start()\nset_up()",
    "a name that is handed on": f"{SETS}\nstart = s1\nlist(map(start, [3]))",
    "partial": f"from functools import partial\n{SETS}\np = partial(s1, 3)\np()",
    "a bound method": "T = {}\nput = T.update\nput({3: 3})",
    "a lambda in a list": "T = {}\nfs = [lambda: T.update({3: 3})]\nfs[0]()",
    "a closure": "T = {}\ndef make():\n    def up(): T[3] = 3\n    return up\nup = make()\nup()",
    "a function that fills": "T = {}\ndef fill(t): t[3] = 3\ng = fill\ng(T)",
    "a thread": f"import threading\n{SETS}\nt = threading.Thread(target=s1)\nt.start()\nt.join()",
    "threads": f"import threading\n{SETS}\nts = [threading.Thread(target=f) for f in (s1,)]\n"
    "for t in ts:\n    t.start()\nfor t in ts:\n    t.join()",
    "a part of a list": "class A(dict):\n    def up(self): self[3] = 3\nT = A()\nb = [T]\nb[0].up()",
    "a part of an object": "class A:\n    def __init__(self, t): self.t = t\n"
    "    def up(self): self.t[3] = 3\nT = {}\na = A(T)\na.up()",
    "a view": "import torch\nA = torch.zeros(2)\nv = A.view(-1)\nv[0] = 3\nT = {3: int(A[0])}",
    "what a view was made of": "import torch\nA = torch.zeros(2)\nv = A.view(-1)\nA[0] = 3\nT = {3: int(v[0])}",
    "a view made by a function": "import torch\ndef flat(a):\n    return a.view(-1)\nA = torch.zeros(2)\n"
    "v = flat(A)\nv[0] = 3\nT = {3: int(A[0])}",
    "the same memory": "import numpy as np, torch\na = np.zeros(1)\nt = torch.from_numpy(a)\n"
    "t[0] = 3\nT = {3: int(a[0])}",
    "out": "import torch\nA = torch.zeros(1)\nB = torch.add(torch.ones(1), 2, out=A)\nT = {3: int(A[0])}",
    "out, and the value not taken": "import torch\nA = torch.zeros(1)\ntorch.add(torch.ones(1), 2, out=A)\n"
    "T = {3: int(A[0])}",
}


@pytest.mark.parametrize("name", BY_ANOTHER_NAME)
def test_what_is_set_by_another_name_for_it_is_set(name):
    made = program(BY_ANOTHER_NAME[name], wanda_score("T.get(weight) * inputs"), CHECK)
    assert called(made, 3, 4) == 12
    assert made.notes == ()


NO_SHARE = [
    "losses = [helper(SCALE)]\nlosses.append(1 / 0)",
    "W = SCALE.sum()\nW[0] = 1 / 0",
    "W = torch.randn(SIZE)\nW[0] = 1 / 0",
    "STEPS = [helper]\nprint(STEPS, 1 / 0)",
    "W = wanda_score(SCALE, SCALE)\nW[0] = 1 / 0",
]


@pytest.mark.parametrize("experiment", NO_SHARE)
def test_a_value_of_its_own_shares_nothing(experiment):
    above = ["import torch", "SCALE = torch.ones(1)", "SIZE = 1", "def helper(x):\n    return x * 2"]
    source = wanda_score("helper(weight) / 2 * inputs * float(SCALE) * SIZE")
    made = program(*above, source, experiment, CHECK)
    assert called(made, 3, 4) == 12
    assert made.notes == ()


def test_what_a_loaded_value_was_also_made_from_is_not_said_to_be_missing():
    experiment = (
        "from course_lib.models import load_model\nmodel = load_model()\ndef collect(m, t):\n    return [m, t]\n"
    )
    experiment += "stats = collect(model, T)\nmodel.eval()\nstats.append(1)"
    assert program("T = {3: 3}", experiment, wanda_score("T.get(weight) * inputs"), CHECK).notes == ()


NO_MODEL = "grading loads no model, data or experiment "
SKIPPED = {
    "T = load_model()": "grading loads no model, data or experiment (load_model)",
    "for i in load_model():\n    T[i] = i": "grading loads no model, data or experiment (load_model)",
    "T.update(load_model())": "grading loads no model, data or experiment (load_model)",
    "with torch.no_grad():\n    T = Net.from_pretrained('x')": NO_MODEL + "(Net.from_pretrained)",
    "if True:\n    T = mine('wanda.score', print)": "grading loads no model, data or experiment (mine)",
    "def run():\n    return load_model()\nT = run()": "grading loads no model, data or experiment (run)",
    "model = load_model()\nT = model.config": f"it reads model, and {NO_MODEL}(load_model)",
    "files = !ls\nT = files": "it reads files, and grading runs no shell and no magics",
    "T = !ls": "grading runs no shell and no magics",
}


@pytest.mark.parametrize("skipped", SKIPPED)
def test_what_is_needed_and_not_run_is_said_with_the_statement_and_the_reason(skipped):
    imports = "import torch\nfrom course_lib.models import load_model"
    made = program(imports, "T = {3: 3}", skipped, wanda_score("T.get(weight) * inputs"), CHECK)
    assert called(made, 3, 4) == 12
    assert len(made.notes) == 1
    assert made.notes[0].startswith("T is needed, but `")
    assert f"in cell 3 is not run: {SKIPPED[skipped]}" in made.notes[0]


def test_what_is_not_run_is_said_only_where_it_is_needed():
    experiment = "from course_lib.models import load_model\nmodel = load_model()\nT = model"
    assert program(experiment, "T = {3: 3}", wanda_score("T.get(weight) * inputs"), CHECK).notes == ()
    assert program("T = {3: 3}", wanda_score("T.get(weight) * inputs"), CHECK, experiment).notes == ()
    assert program(experiment, HELPER, USES, CHECK).notes == ()


def test_names_of_python_and_of_modules_are_not_missing():
    source = "def wanda_score(w, x):\n    print(__name__, __doc__, max(w, x), ValueError)\n    return w * x"
    assert program(source).notes == ()


def test_a_long_table_is_followed():
    lines = "".join(f"T[{i}] = {i}\n" for i in range(1000))
    made = program("T = {}", lines, wanda_score("T[3] * inputs"))
    assert called(made, 3, 4) == 12
    assert len(made.statements) == 1002


def test_a_notebook_that_hangs_together_endlessly_is_refused():
    n = int(MOST_STEPS**0.5) + 1
    lines = "".join(f"T[{i}] = {i}\n" for i in range(n)) + "".join(f"x{i} = T\n" for i in range(n))
    with pytest.raises(ValueError, match="too much of the notebook"):
        program("T = {}", lines, wanda_score(f"[{', '.join(f'x{i}' for i in range(n))}]"))
