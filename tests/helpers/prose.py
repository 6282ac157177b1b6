"""`make lint`: the prose of the project, checked against the table in prose_rules.py.

prose.py            fails where a file has more findings than it may have, and lists them
prose.py FILE...    lists all findings of these files

A file may have one finding per 1,000 words, and none below 1,000 words. Masters also need examples and restatements.
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
# What people read. To cover another kind of file, add it here, and a reader to prose_texts.py if it is not Markdown.
TEXTS = (
    *("*.md", "docs/*.md", "slides/*.md", "solutions/*.py"),
    *("course_lib/**/*.py", "course_lib/**/*.md", "course_lib/**/*.html", "kernels/**/*.py", "kernels/**/*.md"),
)
GENERATED = {"docs/claims.md"}
MASTERS = "solutions/"
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
        """The number of findings that a file may have."""
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


def problems(reports: Mapping[str, Report]) -> list[str]:
    """One sentence for each file with too many findings, and for each master with too few examples."""
    sentences = []
    for name, report in sorted(reports.items()):
        n = len(report.findings)
        if n > report.allowed:
            counted = f"{name}: {n} findings in {report.n_words} words, {report.allowed} allowed"
            sentences.append(f"{counted}. Rewrite these phrases:\n{listing(name, report)}")
        if name.startswith(MASTERS) and report.n_examples * 10_000 < MIN_EXAMPLES * report.n_words:
            needed = -(-MIN_EXAMPLES * report.n_words // 10_000)
            counted = f"{name}: {report.n_examples} examples or restatements in {report.n_words} words"
            sentences.append(f"{counted}; write at least {needed} (for example, such as, in other words, this means).")
    return sentences


def listing(name: str, report: Report) -> str:
    """One line for each finding."""
    return "\n".join(
        f'  {name}:{finding.line}: "{finding.phrase}" → {finding.rule.instead} ({finding.rule.reason})'
        for finding in report.findings
    )


def main(arguments: list[str], root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args(arguments)
    if options.files:
        reports = {str(path): check_file(path) for path in options.files}
        found = [listing(name, report) for name, report in reports.items() if report.findings]
        return _print(found, reports)
    reports = check_project(root)
    return _print(problems(reports), reports)


def _print(found: list[str], reports: Mapping[str, Report]) -> int:
    n_findings = sum(len(report.findings) for report in reports.values())
    n_words = sum(report.n_words for report in reports.values())
    verdict = f"problems, listed above: {len(found)}" if found else "no problem"
    print(*found, f"Prose: {n_findings} findings in {n_words} words of {len(reports)} files; {verdict}.", sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
