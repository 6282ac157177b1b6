"""Write docs/claims.md: what became of every claim of the documents that the course is built from."""

from rich.console import Console

from course_lib.workbook.ledger.everything import all_statements
from course_lib.workbook.ledger.page import PATH, counts, page


def run(check: bool = False) -> int:
    """Write the page, or with `check` only compare; 0 where it is as the results say, 1 where it is not.

    Raises:
        ValueError: where there is no checkout.
    """
    if not PATH.parent.is_dir():  # a package has the results without their page
        raise ValueError(f"got no folder {PATH.parent}; give this command in a checkout of the course.")
    console, text = Console(), page()
    now = PATH.read_text(encoding="utf-8") if PATH.exists() else None
    for line in counts(all_statements())[0].splitlines()[2:]:
        console.print(line.strip("| "), markup=False)
    if now == text:
        console.print(f"{PATH} is up to date.")
        return 0
    if check:
        console.print(f"{PATH} differs from what the results say: `course claims` writes it.")
        return 1
    whole = PATH.with_suffix(".tmp")  # the page changes in one step
    whole.write_text(text, encoding="utf-8")
    whole.replace(PATH)
    console.print(f"Wrote {PATH}.")
    return 0
