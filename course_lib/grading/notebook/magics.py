"""Convert the text of a cell to Python: remove syntax that only IPython understands, line by line.

Standard library only: this runs inside the sandbox. IPython's own transformer turns magics into calls; here nothing
of them is to run, so lines are blanked instead, and what `%time` or `%%capture` hold stays.
"""

import ast
import keyword
import re
import warnings

MOST_LINES = 200  # magics in one cell: each costs one parse

# Cell magics whose body never binds the notebook's names. All others are treated as running Python, like %%time.
_FOREIGN = re.compile(
    "!|bash|cmd|file|html|javascript|js|latex|markdown|perl|pypy|python|python2|python3|ruby|script|sh|sql|sx|svg|"
    "system|timeit|writefile|R"
)
_MAGIC = re.compile(r"[%!?]|[\w.\[\], ]+=\s*[%!]")
_TIMED = "%time "
_ASSIGNED = re.compile(r"([\w.\[\], ]+=)\s*[%!]")
_RUN = re.compile(r"%run\s+(?:-i\s+)?(['\"]?)([^'\"\s]+)\1\s*")
_WRITES = re.compile(r"%%(?:write)?file +(-a +|--append +)?['\"]?([^'\"\s]+)['\"]?\s*")
MAGIC = "_magic_"  # replaces a value that only IPython or a shell would give; called with the text that is not run
_ON_DISK = re.compile(r"[!%]\s*(cd|cp|curl|git|ln|mkdir|mv|rm|tar|touch|unzip|wget)\b.*|!.*[^-=]>.*")

# Magics that are translated to Python.
_ENV = re.compile(r"%(?:set_env\s+|env\s+(?=\S+\s*=|\S+\s+\S))([^\s=]+)(?:\s*=\s*|\s+)([^${}]*)")
_DELETES = re.compile(r"%(?:xdel\s+(?:-n\s+)?|reset_selective\s+-f\s+\^(?=\w+\$))([^\W\d]\w*)\$?\s*")
# Magics that are not translated, although they change the environment or names.
_CHANGES = re.compile(r"%(?:set_env|reset_selective|env\s+\S+\s*=|env\s+\S+\s+\S|xdel)\b.*")
_CONFLICT = re.compile(r"^(<{7}|>{7})( |$)", re.MULTILINE)


def parse(text: str, longest: int) -> tuple[str, ast.Module]:
    """Return the cell as Python, with the same number of lines, and its syntax tree.

    Raises:
        ValueError: "line 3: invalid syntax", if it is not Python.
    """
    if len(text) > longest:
        raise ValueError(f"it has {len(text)} characters, expected at most {longest}")
    lines = _without_cell_magic(_dedented(text.split("\n")))
    for _ in range(MOST_LINES):
        try:
            return "\n".join(lines), _tree("\n".join(lines))
        except SyntaxError as error:
            if not _blank(lines, error.lineno):
                raise ValueError(_why(lines, error)) from None
        except (RecursionError, MemoryError):
            raise ValueError("it is nested too deeply") from None
        except ValueError as error:  # a null character, half a surrogate pair
            raise ValueError(f"it holds characters that Python does not read ({error})") from None
    raise ValueError(f"it has more than {MOST_LINES} lines of magics")


def _why(lines: list[str], error: SyntaxError) -> str:
    if marks := _CONFLICT.search(text := "\n".join(lines)):
        line = text.count("\n", 0, marks.start()) + 1
        return f"line {line}: it holds the marks of a Git conflict ({marks[1]}): resolve the conflict and save again"
    return f"line {error.lineno or 1}: {error.msg[:200]}"


def written_file(text: str) -> str:
    """Return the effect of a cell that begins with %%writefile, as Python; empty for any other cell."""
    first, _, rest = text.lstrip("\n").partition("\n")
    found = _WRITES.fullmatch(first)
    if not found:
        return ""
    rest += "" if rest.endswith("\n") else "\n"
    name, mode = found[2].removeprefix("./"), "a" if found[1] else "w"
    return f"open({name!r}, {mode!r}, encoding='utf-8').write({rest!r})"


def _runs(name: str) -> str:
    """Return the code for `%run` of a file that a cell has written. For others the code says that they are missing."""
    name = name.removeprefix("./")
    return f"exec(open({name if '.' in name else f'{name}.py'!r}, encoding='utf-8').read())"


def _translated(line: str) -> str:
    """Return a magic that sets an environment variable or deletes a name, as Python; empty for any other line."""
    if found := _ENV.fullmatch(line):
        return f"import os as _os_; _os_.environ[{found[1]!r}] = {found[2].strip()!r}"
    if found := _DELETES.fullmatch(line):
        return f"del {found[1]}"
    if _CHANGES.fullmatch(line):  # the variables are named in the line
        words = [] if "env" in line.split()[0] else re.findall(r"[^\W\d]\w*", line)[1:]
        names = dict.fromkeys(name for name in words if not keyword.iskeyword(name))
        return f"{MAGIC}({', '.join([repr(line), *names])})"
    return ""


def _tree(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(text)
        # The parser accepts `return` outside of a function, but a notebook does not.
        compile(tree, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    return tree


def _dedented(lines: list[str]) -> list[str]:
    """Remove the indentation of a cell that is indented as a whole, as IPython does."""
    first = next((line for line in lines if line.strip()), "")
    width = len(_margin(first))
    return [line[min(width, len(_margin(line))) :] for line in lines] if width else lines


def _margin(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _without_cell_magic(lines: list[str]) -> list[str]:
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    if not lines[first].startswith(("%%", "!!")):
        return lines
    name = re.match(r"[\w!]*", lines[first][2:].lstrip())[0] if lines[first].startswith("%%") else "!"
    if not _FOREIGN.fullmatch(name):
        return [""] * (first + 1) + lines[first + 1 :]
    shell = name in ("bash", "sh", "!", "script", "system", "sx")
    on_disk = shell and any(_ON_DISK.fullmatch(f"!{line.strip()}") for line in lines[first + 1 :])
    said = f"{MAGIC}({lines[first].strip()!r})" if on_disk else ""
    return [""] * first + [said] + [""] * (len(lines) - first - 1)


def _blank(lines: list[str], number: int | None) -> bool:
    """Remove the magic from a line that does not parse. Return False if it is not a magic."""
    at = min(number or 1, len(lines)) - 1
    while at > 0 and lines[at - 1].rstrip().endswith("\\"):  # the error may be reported for a continued line
        at -= 1
    line = lines[at].strip()
    if not (_MAGIC.match(line) or line.endswith("?")):
        return False
    if line.startswith(_TIMED):
        lines[at] = _margin(lines[at]) + line[len(_TIMED) :].lstrip()
        return True
    margin = _margin(lines[at])
    if run := _RUN.fullmatch(line):
        lines[at] = margin + _runs(run[2])
        return True
    if translated := _translated(line):
        lines[at] = margin + translated
        return True
    while at < len(lines):
        goes_on = lines[at].rstrip().endswith("\\")
        assigned = _ASSIGNED.match(lines[at].strip())
        on_disk = not margin and _ON_DISK.fullmatch(lines[at].strip())
        said = f"{MAGIC}({lines[at].strip()!r})" if on_disk else "pass"
        lines[at] = margin + (f"{assigned[1]} {MAGIC}" if assigned else said)
        at += 1
        if not goes_on:
            break
    return True
