"""Tables of the instructor's page: cards on a phone, and sorted by a click where scripts run."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

# A click on a heading sorts by it, a second click turns the order around. Without scripts the tables stand as they are.
SORT = """
for (const table of document.querySelectorAll("table.sorts")) {
  table.querySelectorAll("thead th").forEach((head, column) => {
    if (head.dataset.sort === undefined) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending" ||
        (head.dataset.sort === "number" && head.getAttribute("aria-sort") !== "descending");
      const value = row => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const compare = head.dataset.sort === "number" ? (a, b) => value(a) - value(b)
        : (a, b) => value(a).localeCompare(value(b), undefined, {numeric: true});
      const rows = [...table.tBodies[0].rows].sort((a, b) => down ? compare(b, a) : compare(a, b));
      table.tBodies[0].append(...rows);
      table.querySelectorAll("thead th").forEach(each => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
    });
  });
}
"""


@dataclass(frozen=True)
class Column:
    """A heading. Kind says how its cells look: text, tag, number, marks, chart, or the row's own name."""

    label: str
    kind: str = "text"


@dataclass(frozen=True)
class Cell:
    """A cell as HTML that is escaped already, and what it is sorted by where that is another thing."""

    content: str
    value: float | int | None = None


def table(label: str, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], empty: str) -> str:
    """A table with a name for screen readers; a sentence where there are no rows."""
    if not rows:
        return f'<p class="note">{empty}</p>'
    body = "".join(f"<tr>{''.join(map(_cell, columns, row))}</tr>\n" for row in rows)
    heads = "".join(map(_head, columns))
    sorts = " sorts" if len(rows) > 1 else ""
    return (
        f'<div class="scroll"><table class="cards{sorts}" aria-label="{escape(label)}"><thead><tr>{heads}</tr></thead>'
        f"<tbody>\n{body}</tbody></table></div>"
    )


def _head(column: Column) -> str:
    sort = (
        "" if "chart" in column.kind else f' data-sort="{"number" if column.kind in ("number", "marks") else "text"}"'
    )
    kind = ' class="number"' if column.kind == "number" else ""
    return f'<th scope="col"{kind}{sort}>{column.label}</th>'


def _cell(column: Column, cell: Cell) -> str:
    value = "" if cell.value is None else f' data-value="{cell.value:.6g}"'
    if column.kind == "name":
        return f'<th scope="row"{value}>{cell.content}</th>'
    kind = "" if column.kind == "text" else f' class="{column.kind}"'
    return f'<td{kind}{value} data-label="{column.label}">{cell.content}</td>'
