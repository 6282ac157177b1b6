"""`make lint`: the prose of the project, checked against the table in prose_rules.py.

prose.py            fails where a file has more or fewer findings than it should, and lists them
prose.py FILE...    lists all findings of these files
prose.py --update   writes tests/prose_debt.txt after texts have improved or moved, and after a merge

A file may have one finding per 1,000 words, and none below 1,000 words. A file that has not been rewritten yet is
listed in tests/prose_debt.txt, and must have exactly as many findings as the list says. Counts in that list only fall.
"""

import argparse
import gc
import re
import sys
from bisect import bisect_right
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from prose_rules import RULES, Rule
from prose_texts import WORD, Passage, passages

ROOT = Path(__file__).parents[2]
DEBT = Path("tests/prose_debt.txt")
UPDATE = "python tests/helpers/prose.py --update"
# What people read. To cover another kind of file, add it here, and a reader to prose_texts.py if it is not Markdown.
TEXTS = (
    *("*.md", "docs/*.md", "slides/*.md", "solutions/*.py"),
    *("course_lib/**/*.py", "course_lib/**/*.md", "course_lib/**/*.html", "kernels/**/*.py", "kernels/**/*.md"),
)
GENERATED = {"docs/claims.md"}
# Masters that have been rewritten. They also need examples and restatements.
REWRITTEN: tuple[str, ...] = (
    "solutions/00_start_here.py",
    "solutions/01_sparsity_patterns.py",
    "solutions/02_optimal_brain_damage_and_surgeon.py",
    "solutions/03_sparsegpt.py",
    "solutions/04_wanda.py",
    "solutions/05_minitron.py",
    "solutions/06_moe.py",
    "solutions/07_kv_eviction.py",
    "solutions/08_attention_sinks.py",
    "solutions/09_deja_vu.py",
    "solutions/10_compress_then_prompt.py",
    "solutions/11_sparse_attention.py",
    "solutions/12_capstone.py",
)
EXAMPLE = re.compile(
    r"\b(?:for (?:example|instance)|such as|e\.g\.|i\.e\.|that is(?:,| to say)|in other words|this means|which means)",
    re.IGNORECASE,
)
MIN_EXAMPLES = 15  # per 10,000 words


@dataclass(frozen=True)
class Finding:
    """A phrase in a line of a file, and the rule that it breaks."""

    line: int
    phrase: str
    rule: Rule


@dataclass(frozen=True)
class Report:
    """What was found in a file."""

    findings: tuple[Finding, ...]
    n_words: int
    n_examples: int

    @property
    def allowed(self) -> int:
        """The number of findings allowed in a file that is not in the list of debts."""
        return self.n_words // 1000


def check_file(path: Path) -> Report:
    """All findings of a file, from top to bottom."""
    texts, source = sorted(passages(path), key=lambda text: text.line), path.read_text(encoding="utf-8").split("\n")
    lines = [text.text.replace("\n", " ") for text in texts]
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    together = "\n".join(lines)
    found = []
    matches = [(match, rule) for rule in RULES for match in rule.compiled.finditer(together)]
    for match, rule in sorted(matches, key=lambda pair: pair[0].start()):
        index = bisect_right(starts, match.start()) - 1
        line = _line_of(match[0], match.start() - starts[index], texts[index], source)
        found.append(Finding(line, match[0], rule))
    return Report(tuple(found), len(WORD.findall(together)), len(EXAMPLE.findall(together)))


def _line_of(phrase: str, position: int, passage: Passage, source: list[str]) -> int:
    """Count line feeds; in a string of several lines, which has none, look for the first words."""
    line = passage.line + passage.text.count("\n", 0, position)
    words = phrase.split()
    for n_words in range(len(words), 0, -1):
        beginning = " ".join(words[:n_words])
        for number in range(line, passage.last + 1):
            if beginning in source[number - 1]:
                return number
    return line


def check_project(root: Path) -> dict[str, Report]:
    """The report of each file that holds prose, by its path, sorted."""
    names = sorted({path.relative_to(root).as_posix() for pattern in TEXTS for path in root.glob(pattern)} - GENERATED)
    with ProcessPoolExecutor(2, initializer=gc.disable) as pool:  # without the collector ast takes a third of the time
        return dict(zip(names, pool.map(check_file, [root / name for name in names], chunksize=20), strict=True))


def read_debt(text: str) -> dict[str, int]:
    """Path to count. A merge may leave two lines for a path, or conflict markers: the higher count is the limit."""
    debt: dict[str, int] = {}
    for count, name in re.findall(r"^(\d+) (\S+)$", text, re.MULTILINE):
        debt[name] = max(int(count), debt.get(name, 0))
    return debt


def write_debt(debt: Mapping[str, int]) -> str:
    return "".join(f"{debt[name]} {name}\n" for name in sorted(debt))


def problems(reports: Mapping[str, Report], debt: Mapping[str, int]) -> list[str]:
    """One sentence for each file that does not have the number of findings that it should have."""
    sentences = [f"{name}: the file is in {DEBT} and does not exist. Run {UPDATE}." for name in debt.keys() - reports]
    for name, report in reports.items():
        n, limit = len(report.findings), report.allowed if name in REWRITTEN else debt.get(name, report.allowed)
        counted = f"{name}: {n} findings in {report.n_words} words"
        if n > limit:
            sentences.append(f"{counted}, {limit} allowed. Rewrite these phrases:\n{listing(name, report)}")
        elif name in debt and n < limit:
            sentences.append(f"{counted}, fewer than the {limit} in {DEBT}. Run {UPDATE}.")
        elif name in debt and n <= report.allowed:
            sentences.append(f"{counted} are allowed, so the file need not be in {DEBT}. Run {UPDATE}.")
        if name in REWRITTEN and report.n_examples * 10_000 < MIN_EXAMPLES * report.n_words:
            needed = -(-MIN_EXAMPLES * report.n_words // 10_000)
            counted = f"{name}: {report.n_examples} examples or restatements in {report.n_words} words"
            sentences.append(f"{counted}; write at least {needed} (for example, such as, in other words, this means).")
    return sorted(sentences)


def listing(name: str, report: Report) -> str:
    """One line for each finding."""
    return "\n".join(
        f'  {name}:{finding.line}: "{finding.phrase}" → {finding.rule.instead} ({finding.rule.reason})'
        for finding in report.findings
    )


def updated(reports: Mapping[str, Report], debt: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """The new list, and by how many findings files are above what they may have.

    Text moves: a file that is not in the list takes over findings that others have lost in the same update, first those
    of a file whose path differs in the suffix alone, then those of a file of the same name.
    """
    counts = {name: len(report.findings) for name, report in reports.items() if len(report.findings) > report.allowed}
    excess = {name: max(0, n - debt.get(name, 0)) for name, n in sorted(counts.items())}
    lost = {name: max(0, n - counts.get(name, 0)) for name, n in sorted(debt.items())}
    for same in (lambda path: path.with_suffix(""), lambda path: path.name, lambda path: None):
        for name in sorted(excess.keys() - debt):
            for source in lost:
                moved = min(excess[name], lost[source]) if same(Path(name)) == same(Path(source)) else 0
                excess[name] -= moved
                lost[source] -= moved
    return counts, {name: n for name, n in excess.items() if n}


def main(arguments: list[str], root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args(arguments)
    if options.files:
        reports = {str(path): check_file(path) for path in options.files}
        found = [listing(name, report) for name, report in reports.items() if report.findings]
        return _print(found, reports)
    text = (root / DEBT).read_text(encoding="utf-8")
    reports, debt = check_project(root), read_debt(text)
    if options.update:
        debt, excess = updated(reports, debt)
        if not excess:
            (root / DEBT).write_text(write_debt(debt), encoding="utf-8")
        return _print(
            [f"{name}: {n} findings are new. Rewrite them; {DEBT} is unchanged." for name, n in excess.items()], reports
        )
    found = problems(reports, debt)
    if text != write_debt(debt):
        found.append(f"{DEBT} is not sorted, or has a path twice. Run {UPDATE}.")
    return _print(found, reports)


def _print(found: list[str], reports: Mapping[str, Report]) -> int:
    n_findings = sum(len(report.findings) for report in reports.values())
    n_words = sum(report.n_words for report in reports.values())
    verdict = f"problems, listed above: {len(found)}" if found else "no problem"
    print(*found, f"Prose: {n_findings} findings in {n_words} words of {len(reports)} files; {verdict}.", sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
