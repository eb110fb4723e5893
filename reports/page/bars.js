// Each problem's variants and baselines as bars of speed.
const kProblemsAPage = 8;
const problemPage = {first: 0};

// A problem without the fields that all of its op's problems share, which say nothing of this one.
const commonFields = new Map();
for (const op of valuesOf.op) {
  const problems = [...new Set(rows.filter((row) => row.op === op).map((row) => row.problem))].map((text) => text.split(","));
  const common = problems[0].filter((field) => problems.every((fields) => fields.includes(field)));
  commonFields.set(op, new Set(problems.length > 1 ? common : []));
}
function shortProblem(op, problem) {
  const fields = problem.split(",").filter((field) => !commonFields.get(op)?.has(field));
  return fields.length > 0 ? fields.join(" ") : problem;
}

// The fastest baseline of each problem, whatever the filters say: what a row is compared with does not depend on what is shown.
const baselineRows = new Map();
for (const row of rows) {
  if (row.kind !== "baseline" || row.status !== "ok" || row.lossy) continue;
  const known = baselineRows.get(problemName(row)) ?? {};
  for (const [time, field] of Object.entries(kTimes))
    if (row[field] !== null && !(known[time]?.[field] <= row[field])) known[time] = row;
  baselineRows.set(problemName(row), known);
}
function bestBaseline(row) {
  return baselineRows.get(problemName(row))?.[state.time];
}
// Above 1: faster than the best baseline.
function againstBaseline(row) {
  const baseline = bestBaseline(row), time = timeOf(row);
  return baseline && time ? timeOf(baseline) / time : null;
}

const formatRatio = (ratio) => (ratio === null ? "" : `${ratio >= 100 ? ratio.toFixed(0) : ratio >= 10 ? ratio.toFixed(1) : ratio.toFixed(2)}×`);
const ratioClass = (ratio) => (ratio === null ? "ratio" : ratio >= 1.005 ? "ratio good" : ratio < 0.995 ? "ratio bad" : "ratio");

function bar({label, share, value, ratio, colour, mark, classes, title, click}) {
  const track = element("span", {class: "track"}, element("span", {class: "fill", style: `width:${(100 * share).toFixed(2)}%;--fill:${colour}`}));
  if (mark !== undefined) track.append(element("span", {class: "mark", style: `left:${(100 * mark).toFixed(2)}%`}));
  return element(click ? "button" : "div", {class: `bar ${classes ?? ""}`, type: click ? "button" : undefined, title, click},
                 element("span", {class: "label"}, label), track, element("span", {class: "value"}, value),
                 element("span", {class: ratioClass(ratio ?? null)}, formatRatio(ratio ?? null)));
}

function barCard(problemRows) {
  const sorted = [...problemRows].sort((a, b) => timeOf(a) - timeOf(b));
  const baseline = bestBaseline(sorted[0]);
  const fastest = Math.min(timeOf(sorted[0]), baseline ? timeOf(baseline) : Infinity);
  const {op, dtype, problem} = sorted[0];
  const card = element("div", {class: "bars", "data-problem": problem},
                       element("h3", {title: problem}, `${op} `, element("span", {class: "muted"}, `${shortProblem(op, problem)}, ${dtype}`)));
  sorted.forEach((row, i) => card.append(bar({
    label: row.variant, share: fastest / timeOf(row), value: `${formatNumber(timeOf(row))} µs`, ratio: againstBaseline(row),
    colour: `var(--kind-${row.kind})`, mark: baseline ? fastest / timeOf(baseline) : undefined, classes: i === 0 ? "best" : "",
    click: (event) => showCard(row, {x: event.clientX, y: event.clientY}, true),
  })));
  return card;
}

function ownRatio(problemRows) {
  const ratios = problemRows.filter((row) => row.kind !== "baseline").map(againstBaseline).filter((ratio) => ratio !== null);
  return ratios.length > 0 ? Math.max(...ratios) : Infinity;
}

function drawBars() {
  const groups = groupBy(shown.filter((row) => timeOf(row) > 0), problemName);
  const weight = (list) => Math.min(...list.map(timeOf));
  const measure = new Map(groups.map((list) => [list, state.order === "largest" ? -weight(list) : ownRatio(list)]));
  groups.sort((a, b) => measure.get(a) - measure.get(b));
  const {items, buttons} = pageOf(groups, kProblemsAPage, problemPage, drawBars);
  replaceChildren(byId("bars-controls"), [
    segments("order", [["largest", "longest first"], ["worst", "worst against baseline first"]], state.order, (order) => {
      problemPage.first = 0;
      change({order});
    }),
    ...buttons,
  ]);
  replaceChildren(byId("bar-cards"), groups.length === 0 ? [element("p", {class: "muted"}, "No row of this selection has a time.")]
                                                         : items.map(barCard));
}
onChange(drawBars);
