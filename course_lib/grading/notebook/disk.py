"""Find the effects of a notebook on the disk from its text: calls that write files, make folders, or read them.

A file whose name is a literal is followed like a variable, `%options.json`. All other files, and folders, are
UNNAMED. EVERY stands for all files on the disk. Standard library only: this runs inside the sandbox.
"""

import ast
import re
from collections.abc import Iterable, Iterator

from course_lib.grading.notebook.magics import MAGIC
from course_lib.grading.notebook.names import dotted, root

FILE = "%"  # before the name of a file, which is written and read like a name
EVERY, UNNAMED = FILE, f"{FILE}?"
ENVIRONMENT = f"{FILE}$"  # environment variables, which are not Python names either
_FILE = re.compile(r"(?:\./)?((?:[\w-]+/)*[\w-]+\.(?:py|pt|pth|npy|npz|json|jsonl|txt|csv|tsv|pkl|pickle|safetensors))")
_LONGEST = 200  # characters of the name of a file

# Functions by their full name, and methods of any object by their own name.
_MOVES = re.compile(
    r"os\.(chdir|link|mkdir|makedirs|remove|removedirs|rename|renames|replace|rmdir|symlink|truncate|unlink)|"
    r"shutil\.(copy\w*|move|rmtree|make_archive|unpack_archive)|os\.(system|popen)|subprocess\.\w+"
)
_MAKES_FOLDERS = re.compile("mkdir|makedirs|rmdir|unlink|symlink_to|hardlink_to|extractall|touch")
_WRITES = re.compile(
    r"write_(text|bytes|csv|parquet)|save|savetxt|savez\w*|save_(file|model|pretrained)|tofile|imsave|imwrite|writestr|"
    r"to_(csv|excel|feather|hdf|json|parquet|pickle)|joblib\.dump"
)
# Functions that read and write one file, which may get an ending.
_KEEPS = re.compile(r"(shelve|dbm(\.\w+)?)\.open|sqlite3\.connect")
_LOGS = re.compile(r"logging\.(basicConfig|FileHandler|handlers\.\w*FileHandler)")
_OPENS = {"open", "ZipFile", "TarFile", "memmap"}
_READS = re.compile(
    r"read_(text|bytes|csv|excel|feather|hdf|json|parquet|pickle|table)|loadtxt|genfromtxt|fromfile|load_file|safe_open|"
    r"exists|is_file|is_dir|isfile|isdir|iterdir|listdir|scandir|r?glob|iglob|savefig|getsize|"
    r"(torch|numpy|joblib)\.load|os\.(walk|stat|getcwd)"
)
_TO_WRITE = re.compile(r"[rbt]*[wax+][wax+bt]*(:\w*)?")  # the mode of `open`
_SETS_ENVIRONMENT = re.compile(r"os\.(putenv|unsetenv|environ\.(update|setdefault|pop|clear|__setitem__))")
_PROGRAMS = re.compile(r"os\.(system|popen)|subprocess\.(run|call|check_call|check_output|Popen)")


def named_files(node: ast.AST) -> Iterator[str]:
    """Yield the files that a statement names, also as modules, in the form of names."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and len(part.value) < _LONGEST:
            if found := _FILE.fullmatch(part.value):
                parts = found[1].split("/")
                # A module is imported by the part of its path below a folder on sys.path.
                ends = range(len(parts)) if found[1].endswith(".py") else [0]
                yield from (FILE + "/".join(parts[end:]) for end in ends)
        elif isinstance(part, ast.Import):
            yield from (f"{FILE}{alias.name.replace('.', '/')}.py" for alias in part.names)
        elif isinstance(part, ast.ImportFrom) and part.module and not part.level:
            yield f"{FILE}{part.module.replace('.', '/')}.py"


class Disk:
    """The effects of calls on the disk.

    Args:
        imported: the full name of each imported name.
    """

    def __init__(self, statements: Iterable[ast.stmt], imported: dict[str, str]):
        self.imported, self.packages = imported, {name.partition(".")[0] for name in imported.values()}
        self.handles: set[str] = set()  # names of files that are open for writing
        for node in statements:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                given = {getattr(argument, "id", "") for argument in node.value.args}
                if self._opens_to_write(node.value) or self._kind(node.value) == "keeps" or given & self.handles:
                    self.handles |= {target.id for target in node.targets if isinstance(target, ast.Name)}

    def writes(self, part: ast.AST, discarded: bool) -> set[str]:
        """Return the files that a call changes, or a function that is passed on by name."""
        if isinstance(part, ast.Attribute) and _MOVES.fullmatch(dotted(part, self.imported)):
            return {EVERY, UNNAMED}
        if isinstance(part, ast.Subscript) and not isinstance(part.ctx, ast.Load):
            if root(part) in self.handles:
                return {EVERY, UNNAMED}
            return {ENVIRONMENT} if dotted(part.value, self.imported) == "os.environ" else set()
        if not isinstance(part, ast.Call):
            return set()
        if _SETS_ENVIRONMENT.fullmatch(dotted(part.func, self.imported)):
            return {ENVIRONMENT}
        if getattr(part.func, "id", "") == MAGIC:
            names = {getattr(given, "id", "") for given in part.args} - {""}
            of_environment = any(str(getattr(text, "value", "")).startswith(("%env", "%set_env")) for text in part.args)
            return {ENVIRONMENT} if of_environment else names or {EVERY, UNNAMED}
        kind = self._kind(part)
        if not kind and discarded:
            given = [*part.args, *(keyword.value for keyword in part.keywords)]
            to_handle = root(part.func) in self.handles or any(
                getattr(each, "id", "") in self.handles for each in given
            )
            renames = getattr(part.func, "attr", "") in ("rename", "replace") and len(part.args) == 1
            kind = "makes folders" if to_handle or renames else ""
        if kind in ("", "reads"):
            return set()
        named = set(named_files(part))
        return {EVERY, *named} | ({UNNAMED} if kind != "writes" or not named else set())

    def reads(self, node: ast.stmt) -> set[str]:
        """Return the files that a statement, or what it defines, may need."""
        found: set[str] = set()
        for part in ast.walk(node):
            if isinstance(part, ast.Call) and (kind := self._kind(part)):
                known = kind in ("writes", "makes folders") or any(named_files(part))
                found.add(UNNAMED if known else EVERY)
            elif isinstance(part, (ast.Attribute, ast.Name)):
                full = dotted(part, self.imported)
                found |= {UNNAMED} if _MOVES.fullmatch(full) else set()
                found |= {ENVIRONMENT} if full in ("os.environ", "os.getenv") else set()
        return found

    def starts_a_program(self, node: ast.stmt) -> bool:
        """Check whether a statement does nothing except start another program, such as a shell."""
        call = node.value if isinstance(node, ast.Expr) else None
        return isinstance(call, ast.Call) and _PROGRAMS.fullmatch(dotted(call.func, self.imported)) is not None

    def _kind(self, call: ast.Call) -> str:
        """ "moves", "makes folders", "writes", "keeps" (it reads and writes), "reads", or nothing of that."""
        full = dotted(call.func, self.imported)
        last = full.rpartition(".")[2]
        if _MOVES.fullmatch(full):
            return "makes folders" if _MAKES_FOLDERS.fullmatch(last) else "moves"
        if _MAKES_FOLDERS.fullmatch(last):
            return "makes folders"
        if _KEEPS.fullmatch(full):
            return "keeps"
        if _LOGS.fullmatch(full):  # without a file it prints
            named = last != "basicConfig" or any(keyword.arg == "filename" for keyword in call.keywords)
            return "writes" if named else ""
        if last in _OPENS:
            return "writes" if self._opens_to_write(call) else "reads"
        if _WRITES.fullmatch(last) or _WRITES.fullmatch(full):
            return "writes"
        first = call.args[0] if call.args else None
        parses = last == "read" and isinstance(getattr(first, "value", None), str)  # as of configparser
        return "reads" if parses or _READS.fullmatch(last) or _READS.fullmatch(full) else ""

    def _opens_to_write(self, call: ast.Call) -> bool:
        """Check for `open(path, "w")` and `path.open("a")`, also with a mode that is not a literal."""
        full = dotted(call.func, self.imported)
        if full.rpartition(".")[2] not in _OPENS:
            return False
        path_is_given = isinstance(call.func, ast.Name) or full.partition(".")[0] in self.packages
        modes = call.args[1:2] if path_is_given else call.args[:1]
        modes = [*modes, *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
        texts = [mode.value if isinstance(mode, ast.Constant) else "w" for mode in modes]
        return any(isinstance(text, str) and _TO_WRITE.fullmatch(text) for text in texts)
