"""Write docs/claims.md and its summary: the verdict on every claim of the documents on which the course is based."""

from pathlib import Path

from rich.console import Console

from course_lib.measure.progress import bar
from course_lib.workbook.ledger.everything import all_statements
from course_lib.workbook.ledger.page import PATH, SUMMARY, counts, page, summary


def run(check: bool = False) -> int:
    """Write both files, or only compare them with `check`. Return 0 if they match the results, 1 if not.

    Raises:
        ValueError: outside a checkout.
    """
    if not PATH.parent.is_dir():  # a package contains the results but not their page
        raise ValueError(f"got no folder {PATH.parent}; run this command in a checkout of the course.")
    console = Console()
    with bar(console=console) as shown:
        shown.add_task("judging claims", total=None)
        texts = {PATH: page(), SUMMARY: summary()}
    for line in counts(all_statements())[0].splitlines()[2:]:
        console.print(line.strip("| "), markup=False)
    outcomes = [_bring_up_to_date(path, text, check, console) for path, text in texts.items()]
    return max(outcomes)


def _bring_up_to_date(path: Path, text: str, check: bool, console: Console) -> int:
    now = path.read_text(encoding="utf-8") if path.exists() else None
    if now == text:
        console.print(f"{path} is up to date.")
        return 0
    if check:
        console.print(f"{path} differs from the results; run `course claims`.")
        return 1
    whole = path.with_suffix(".tmp")  # the file changes in one step
    whole.write_text(text, encoding="utf-8")
    whole.replace(path)
    console.print(f"Wrote {path}.")
    return 0
