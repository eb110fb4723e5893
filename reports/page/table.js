// The table: sorts by any column, searches every text, shows 50 rows at a time.
const kRowsAPage = 50;
const mainColumns = page.rows.names.filter((name) => page.rows.about[name].place > 0).sort((a, b) => page.rows.about[a].place - page.rows.about[b].place);
mainColumns.splice(mainColumns.indexOf("pct_of_roof") + 1, 0, "ratio");  // the one that the page computes
const table = {sort: null, descending: false, first: 0, search: ""};

const columnLabel = (name) => (name === "ratio" ? "× baseline" : page.rows.about[name].label || name.replace(/_/g, " "));
const valueOf = (row, name) => (name === "ratio" ? againstBaseline(row) : row[name]);
const isTextColumn = (name) => name !== "ratio" && page.rows.about[name].text;

function searchText(row) {
  row.searchText ??= page.rows.names.filter(isTextColumn).map((name) => row[name]).join("\n").toLowerCase();
  return row.searchText;
}

const textOrder = new Intl.Collator("en", {numeric: true});

function tableRows() {
  const words = table.search.toLowerCase().split(/\s+/).filter(Boolean);
  const found = words.length === 0 ? [...shown] : shown.filter((row) => words.every((word) => searchText(row).includes(word)));
  if (table.sort === null) return found;
  const sign = table.descending ? -1 : 1;
  const keyed = found.map((row) => [valueOf(row, table.sort), row]);
  if (isTextColumn(table.sort)) keyed.sort((a, b) => sign * textOrder.compare(a[0], b[0]) || a[1].index - b[1].index);
  else  // rows without a number come last, either way
    keyed.sort((a, b) => (a[0] === null) - (b[0] === null) || sign * (a[0] - b[0]) || a[1].index - b[1].index);
  return keyed.map(([, row]) => row);
}

function sortBy(name) {
  if (table.sort === name) table.descending = !table.descending;
  else Object.assign(table, {sort: name, descending: false});
  table.first = 0;
  fillTable();
}

function headCell(name) {
  const sorted = table.sort === name ? (table.descending ? "descending" : "ascending") : undefined;
  const arrow = sorted ? (table.descending ? " ↓" : " ↑") : "";
  return element("th", {scope: "col", "data-column": name, "aria-sort": sorted, class: isTextColumn(name) ? undefined : "number",
                        title: page.rows.about[name]?.description || undefined},
                 element("button", {type: "button", click: () => sortBy(name)}, columnLabel(name) + arrow));
}

function cell(row, name) {
  const value = valueOf(row, name);
  if (name === "status") return element("td", {class: value === "ok" ? "status" : "status bad"}, value);
  if (name === "problem" || name === "reason") return element("td", {class: name, title: value}, value);
  if (name === "ratio") return element("td", {class: `number ${ratioClass(value)}`}, formatRatio(value));
  return isTextColumn(name) ? element("td", {}, value) : element("td", {class: "number"}, formatNumber(value));
}

function fillTable() {
  const {items, buttons} = pageOf(tableRows(), kRowsAPage, table, fillTable);
  const names = state.columns === "main" ? mainColumns : [...page.rows.names, "ratio"];
  replaceChildren(document.querySelector("#rows thead"), [element("tr", {}, ...names.map(headCell))]);
  replaceChildren(document.querySelector("#rows tbody"), items.map((row) => {
    const open = (event) => showCard(row, event.clientX ? {x: event.clientX, y: event.clientY} : null, true);
    return element("tr", {tabindex: "0", "data-row": row.index, click: open, keydown: (event) => { if (event.key === "Enter") open(event); }},
                   ...names.map((name) => cell(row, name)));
  }));
  replaceChildren(byId("table-pager"), buttons);
}

function searchFor(text) {
  table.search = text;
  table.first = 0;
  const box = byId("search");
  if (box.value !== text) box.value = text;
  fillTable();
}

replaceChildren(byId("table-controls"), [
  element("input", {type: "search", id: "search", placeholder: "Search: gemm ptx, unsupported, m=4096 ...", "aria-label": "Search the rows",
                    input: (event) => searchFor(event.target.value)}),
  element("span", {id: "column-choice"}),
]);

onChange(() => {
  replaceChildren(byId("column-choice"), [segments("columns", [["main", "main"], ["all", "all"]], state.columns, (columns) => change({columns}))]);
  fillTable();
});
