// A page that lies on a disk may not read others, of which the search would show a line each.
if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

// The search finds pages. A claim is a row of a long one, so the same words lead there, where the other rows are hidden.
window.addEventListener("load", () => {
  const summary = document.querySelector("#search-results .search-summary");
  const words = new URLSearchParams(location.search).get("q");
  if (!summary || !words) return;
  document.querySelector("form.asked input").value = words;
  const line = document.createElement("p"), link = document.createElement("a");
  link.href = `claims.html?${new URLSearchParams({ words })}`;
  link.textContent = "Claims with these words";
  line.append(link);
  summary.after(line);
});

// The path of a file in a table breaks behind its slashes, and a long name behind what joins its parts.
const LONG_NAME = 20;
document.addEventListener("DOMContentLoaded", () => {
  for (const name of document.querySelectorAll("article table td code .pre")) {
    const parts = name.textContent.split(name.textContent.length > LONG_NAME ? /(?<=[/_])/ : /(?<=[/])/);
    if (name.children.length || parts.length < 2) continue;
    name.replaceChildren(...parts.flatMap(part => [part, document.createElement("wbr")]).slice(0, -1));
  }
});

// Tables of sentences or of pictures become cards on a phone: each cell is told its column. See course.css.
const LONG = 60;
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table")) {
    const columns = [...(table.tHead?.rows[0]?.cells ?? [])].map(cell => cell.textContent.trim());
    const cells = [...table.querySelectorAll("tbody td")];
    if (columns.length < 3 || !cells.some(cell => cell.textContent.length > LONG || cell.querySelector("img"))) continue;
    table.classList.add("sentences");
    for (const cell of cells) {
      if (cell.textContent.trim() || cell.querySelector("img")) cell.dataset.column = columns[cell.cellIndex];
      else cell.classList.add("nothing");
    }
  }
});

// The claims page: a form keeps the rows of one verdict, source or lesson that have most of the words. The address keeps
// the choice, so it can be sent.
document.addEventListener("DOMContentLoaded", () => {
  const column = (table, name) => [...(table.tHead?.rows[0]?.cells ?? [])].findIndex(cell => cell.textContent.trim() === name);
  const tables = [...document.querySelectorAll("article table")].filter(
    table => column(table, "verdict") >= 0 && Math.max(column(table, "statement"), column(table, "claim")) >= 0);
  if (!tables.length) return;
  const heading = table => table.closest("section").querySelector("h2, h3").firstChild.textContent.trim();
  const rows = tables.flatMap(table => [...table.tBodies[0].rows]);
  const text = new Map(rows.map(row => [row, row.textContent.toLowerCase()]));
  const verdicts = new Map(tables.flatMap(table => [...table.tBodies[0].rows].map(
    row => [row, row.cells[column(table, "verdict")].textContent.replace(/\s*\(.*/s, "").trim()])));
  const headings = new Map(tables.flatMap(table => [...table.tBodies[0].rows].map(row => [row, heading(table)])));
  const form = document.createElement("form");
  form.className = "claims";
  form.innerHTML = `<label>Words <input type="search" name="words" autocomplete="off"></label>
    <label>Verdict <select name="verdict"><option value="">all</option></select></label>
    <label>Source or lesson <select name="section"><option value="">all</option></select></label>
    <output aria-live="polite"></output>`;
  const {words, verdict, section} = form.elements, count = form.querySelector("output");
  [...new Set(verdicts.values())].sort().forEach(kind => verdict.add(new Option(kind, kind)));
  [...new Set(headings.values())].forEach(kind => section.add(new Option(kind, kind)));
  const show = () => {
    const searched = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const candidates = rows.filter(row => (!verdict.value || verdicts.get(row) === verdict.value)
      && (!section.value || headings.get(row) === section.value));
    const hits = new Map(candidates.map(row => [row, searched.filter(word => text.get(row).includes(word)).length]));
    const most = Math.max(0, ...hits.values());
    const stays = row => hits.has(row) && hits.get(row) === most && (most > 0 || !searched.length);
    for (const row of rows) row.hidden = !stays(row);
    for (const table of tables) {
      table.closest("section").hidden = [...table.tBodies[0].rows].every(row => row.hidden);
    }
    const part = most && most < searched.length ? `, with ${most} of ${searched.length} words` : "";
    count.textContent = `${rows.filter(stays).length} of ${rows.length} statements and claims${part}`;
  };
  const address = new URLSearchParams(location.search);
  words.value = address.get("words") ?? "";
  for (const list of [verdict, section]) {
    const value = address.get(list.name);
    list.value = [...list.options].some(option => option.value === value) ? value : "";
  }
  form.addEventListener("input", () => {
    show();
    const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value)).toString();
    history.replaceState(null, "", location.pathname + (query && `?${query}`));
  });
  form.addEventListener("submit", event => event.preventDefault());
  tables[0].closest("section").before(form);
  show();
});
