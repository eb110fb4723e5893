// What the run lacks: cases without a row, rows that are not ok with their reasons, and how far each variant covers the problems.

const countBy = (list, keyOf) => groupBy(list, keyOf).map((items) => [...keyOf(items[0]), items.length]);

function coverage() {
  const key = ({op, dtype}) => JSON.stringify([op, dtype]);
  const problems = new Map();  // of each op and dtype, those that some row or network names
  for (const row of rows) {
    if (!problems.has(key(row))) problems.set(key(row), new Set(networkProblems.filter((use) => use.op === row.op).map((use) => use.problem)));
    problems.get(key(row)).add(row.problem);
  }
  return countBy(rows, (row) => [row.op, row.dtype, row.variant, row.kind]).map(([op, dtype, variant, kind, count]) => {
    const ok = rows.filter((row) => row.op === op && row.dtype === dtype && row.variant === variant && row.status === "ok").length;
    return [op, dtype, variant, kind, ok, count - ok, problems.get(key({op, dtype})).size - count];
  });
}

function drawGaps() {
  const blocks = [];
  if (page.lacks.length > 0) blocks.push(element("div", {class: "block"}, ...page.lacks.map((lack) => element("p", {}, lack.text))));
  const without = decodeRecords(page.without_row, ["op", "dtype", "problem", "variant"]);
  if (without.length > 0) {
    blocks.push(block("Cases without a row", simpleTable(["op", "dtype", "variant", "problem"], without.map((one) => [one.op, one.dtype, one.variant, one.problem]), 9)));
    blocks[blocks.length - 1].id = "without-row";
  }
  const notOk = rows.filter((row) => row.status !== "ok");
  if (notOk.length > 0) {
    const lines = countBy(notOk, (row) => [row.status, row.op, row.variant, row.reason]).sort((a, b) => b[4] - a[4]);
    blocks.push(block(`Rows that are not ok: ${notOk.length.toLocaleString("en-US")}`, simpleTable(["status", "op", "variant", "reason", "rows"], lines, 4)));
    blocks[blocks.length - 1].id = "not-ok";
  }
  blocks.push(block("Coverage", element("p", {class: "muted"}, "Of the problems of each op in this run: how many each variant has a row of. No row: it was not chosen, or not reached."),
                    simpleTable(["op", "dtype", "variant", "kind", "ok", "not ok", "no row"], coverage(), 4)));
  replaceChildren(byId("gap-list"), blocks);
}
