"""The prose in a file, passage by passage: Markdown, masters, Python and HTML templates, without code and formulas."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")
# What is no prose, and what takes its place: "X" where a sentence needs a noun. Applied in this order.
NOT_PROSE = [
    (re.compile(r"<!--|-->|</?[A-Za-z][^<>]*>"), " "),
    (re.compile(r"!?\[(?=[^\]]*\]\()|\]\([^)]*\)"), ""),
    (re.compile(r"(`+).+?\1", re.DOTALL), "X"),
    (re.compile(r"(?<![\\\w])\$[^$]+\$"), "X"),
    (re.compile(r"\w+://[^\s)>\"”]+"), "X"),
    # The title of a paper, in quotation marks: three or more of its longer words begin with a capital, one may not.
    (re.compile(r"[\"“](?=(?:[^\"”]*?\b[A-Z][\w-]{3,}){3})(?!(?:[^\"”]*? [a-z][\w-]{3,}){2})[^\"”]*[\"”]"), "X"),
    # Names in code: with an underscore or a dot inside, or called.
    (re.compile(r"\b\w[\w.]*\([^()]*\)|\b[A-Za-z]*(?:_\w+|\w\w\.[A-Za-z]\w*)+"), "X"),
    (re.compile(r"\*+|(?<!\w)_+|_+(?!\w)"), ""),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r" ?\n ?"), "\n"),
]
NOT_IN_PAGES = re.compile(r"<(style|script)\b.*?</\1>|\{%.*?%\}|\{#.*?#\}|\{\{.*?\}\}", re.DOTALL)
MARKER = re.compile(r"\s*(?:[-*+] |\d+\. |#+ |\||> ?)\s*")  # begins a list item, a heading, a table row, a quotation
# A comment of Python, or a string, which may hold a number sign. It is ten times as fast as tokenize.
STRING_OR_COMMENT = re.compile(
    r"""\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\#[^\n]*""", re.DOTALL
)
FENCE = re.compile(r"\s*(```|~~~)")


@dataclass(frozen=True)
class Passage:
    """A paragraph, list item, heading, table row, string or comment; code in it has been replaced."""

    text: str  # a line feed for each line feed of the file
    line: int  # of the file, where the text begins
    last: int  # of the file; a string may have more lines there than line feeds


def passages(path: Path) -> list[Passage]:
    """All prose in a file."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        cells, code = split_cells(source)
        return [*markdown(cells), *strings(code), *comments(code)]
    if path.suffix == ".html":
        source = _replace(NOT_IN_PAGES, " X ", source)
    return list(markdown(source))


def split_cells(source: str) -> tuple[str, str]:
    """The Markdown cells of a master and its code, each with an empty line for every line of the other."""
    cells, code, in_markdown = [], [], False
    for line in source.split("\n"):
        is_header = line.startswith("# %%")
        in_markdown = "[markdown]" in line if is_header else in_markdown
        cells.append(line[1:].strip() if in_markdown and not is_header else "")
        code.append("" if in_markdown or is_header else line)
    return "\n".join(cells), "\n".join(code)


def markdown(source: str, first_line: int = 1) -> Iterator[Passage]:
    """The passages of a text that may have fences, formulas and examples of an interpreter."""
    block: list[str] = []
    start, closing = first_line, ""  # `closing` ends the fence or formula that we are in
    for number, line in enumerate([*source.split("\n"), ""], first_line):
        opening = "" if closing else (FENCE.match(line) or ["", ""])[1] or "$$" * (line.count("$$") % 2)
        is_code = bool(closing or opening or line.lstrip().startswith((">>>", "...")))
        closing = opening or ("" if closing in line else closing)
        marker = MARKER.match(line)
        if block and (is_code or marker or not line.strip()):
            yield from _passage("\n".join(block), start, number - 1)
            block = []
        if line.strip() and not is_code:
            start = start if block else number
            block.append((line[marker.end() :] if marker else line).strip().replace("|", "."))


def strings(source: str) -> Iterator[Passage]:
    """Docstrings, messages, captions, labels: all strings but names, code and regular expressions."""
    stack: list[ast.AST] = [ast.parse(source)]
    while stack:
        node = stack.pop()
        text = ""
        if isinstance(node, ast.JoinedStr):
            text = "".join(part.value if isinstance(part, ast.Constant) else " X " for part in node.values)
            stack += [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
        elif isinstance(node, ast.Constant):
            text = node.value if isinstance(node.value, str) else ""
        elif not (isinstance(node, ast.Call) and _is_of_re(node.func)):
            stack += ast.iter_child_nodes(node)
        if " " in text and not _is_code(text):
            yield from (Passage(found.text, found.line, node.end_lineno) for found in markdown(text, node.lineno))


def comments(source: str) -> Iterator[Passage]:
    """Comments; lines that hold nothing else are read together."""
    block: list[str] = []
    line, end, goes_on = 1, 0, False
    for match in (match for match in STRING_OR_COMMENT.finditer(source) if match[0][0] == "#"):
        gap = source[end : match.start()]
        if not (goes_on and gap.strip(" ") == "\n"):
            yield from markdown("\n".join(block), line - len(block) + 1)
            block = []
        line, end, goes_on = line + gap.count("\n"), match.end(), not gap.rpartition("\n")[2].strip()
        block.append(match[0].lstrip("#!:").strip())
    yield from markdown("\n".join(block), line - len(block) + 1)


def _passage(text: str, line: int, last: int) -> Iterator[Passage]:
    for pattern, instead in NOT_PROSE:
        text = _replace(pattern, instead, text)
    if len(re.findall(r"[A-Za-z]{2,}", text)) > 1:
        yield Passage(text.strip(), line, last)


def _replace(pattern: re.Pattern, instead: str, text: str) -> str:
    """The line feeds of what is replaced are kept, because lines are counted by them."""
    if "\n" not in text:
        return pattern.sub(instead, text)
    n_lines = instead.count("\n")
    return pattern.sub(lambda match: instead + "\n" * (match[0].count("\n") - n_lines), text)


def _is_of_re(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and getattr(function.value, "id", None) == "re"


def _is_code(text: str) -> bool:
    """A string that Python could run, and that has a character which prose hardly has."""
    if not re.search(r"=|\[|\w\(", text):
        return False
    try:
        ast.parse(text.strip())
    except (SyntaxError, ValueError):
        return False
    return True
