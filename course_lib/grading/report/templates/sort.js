// A click on a heading sorts by it, a second click turns the order around. Without scripts the tables stand as they are.
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
