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

// The page of claims: of a verdict, the rows with most of the words stay. The address keeps the choice, so it can be sent.
document.addEventListener("DOMContentLoaded", () => {
  const third = table => table.tHead?.rows[0]?.cells[2]?.textContent.trim();
  const tables = [...document.querySelectorAll("article table")].filter(table => third(table) === "verdict");
  if (!tables.length) return;
  const rows = tables.flatMap(table => [...table.tBodies[0].rows]);
  const text = new Map(rows.map(row => [row, row.textContent.toLowerCase()]));
  const verdict = row => row.cells[2].textContent.replace(/\s*\(.*/s, "").trim();
  const kinds = [...new Set(rows.map(verdict))].sort();
  const form = document.createElement("form");
  form.className = "claims";
  form.innerHTML = `<label>Words <input type="search" name="words" autocomplete="off"></label>
    <label>Verdict <select name="verdict"><option value="">all</option></select></label>
    <output aria-live="polite"></output>`;
  const words = form.elements.words, chosen = form.elements.verdict, said = form.querySelector("output");
  kinds.forEach(kind => chosen.add(new Option(kind, kind)));
  const show = () => {
    const asked = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const candidates = rows.filter(row => !chosen.value || verdict(row) === chosen.value);
    const hits = new Map(candidates.map(row => [row, asked.filter(word => text.get(row).includes(word)).length]));
    const most = Math.max(0, ...hits.values());
    const stays = row => hits.has(row) && hits.get(row) === most && (most > 0 || !asked.length);
    for (const row of rows) row.hidden = !stays(row);
    for (const table of tables) {
      table.closest("section").hidden = [...table.tBodies[0].rows].every(row => row.hidden);
    }
    const part = most && most < asked.length ? `, with ${most} of ${asked.length} words` : "";
    said.textContent = `${rows.filter(stays).length} of ${rows.length} claims${part}`;
  };
  const given = new URLSearchParams(location.search);
  words.value = given.get("words") ?? "";
  chosen.value = kinds.includes(given.get("verdict")) ? given.get("verdict") : "";
  form.addEventListener("input", () => {
    show();
    const kept = new URLSearchParams([...new FormData(form)].filter(([, value]) => value)).toString();
    history.replaceState(null, "", location.pathname + (kept && `?${kept}`));
  });
  form.addEventListener("submit", event => event.preventDefault());
  tables[0].closest("section").before(form);
  show();
});
