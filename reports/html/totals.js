// Totals of a forward pass: time x count over a network's problems of an op, by one variant, by our fastest of each problem, or by the
// fastest of all. Choices are made by cold time, as in plan.csv; the sum is of the time that is shown.
const kNetworksAPage = 6;
let firstNetwork = 0;
const kOwnBest = "own best", kFastest = "fastest";

function choiceRows(timed) {
  const chosen = new Map();  // problem key -> choice -> row
  const put = (row, choice) => {
    const key = problemKey(row);
    if (!chosen.has(key)) chosen.set(key, new Map());
    const known = chosen.get(key).get(choice);
    if (!known || row.time_cold_us < known.time_cold_us) chosen.get(key).set(choice, row);
  };
  for (const row of timed) {
    put(row, row.variant);
    put(row, kFastest);
    if (row.kind !== "baseline") put(row, kOwnBest);
  }
  return chosen;
}

// [{network, op, dtype, choice, kind, sum, problems, missing}] of the shown rows.
function networkTotals() {
  const chosen = choiceRows(shown.filter((row) => row.status === "ok"));
  const variants = new Map();  // op -> variant -> kind, in the order of the rows
  const dtypes = new Map();
  for (const row of shown) {
    if (!variants.has(row.op)) variants.set(row.op, new Map());
    if (!dtypes.has(row.op)) dtypes.set(row.op, new Set());
    variants.get(row.op).set(row.variant, row.kind);
    dtypes.get(row.op).add(row.dtype);
  }
  const needs = new Map();  // network|op -> uses
  for (const use of networkProblems) {
    if (!lets("network", use.network) || !variants.has(use.op)) continue;
    const key = `${use.network}|${use.op}`;
    if (!needs.has(key)) needs.set(key, []);
    needs.get(key).push(use);
  }
  const totals = [];
  for (const uses of needs.values()) {
    const {network, op} = uses[0];
    for (const dtype of dtypes.get(op)) {
      for (const choice of [kOwnBest, kFastest, ...variants.get(op).keys()]) {
        const total = {network, op, dtype, choice, kind: variants.get(op).get(choice), sum: 0, problems: uses.length, missing: 0};
        for (const use of uses) {
          const row = chosen.get(`${op}|${dtype}|${use.problem}`)?.get(choice);
          const time = row ? timeOf(row) : null;
          if (time === null) ++total.missing;
          else total.sum += time * use.count;
        }
        if (total.missing < total.problems) totals.push(total);
      }
    }
  }
  return totals;
}

// Over all ops of a network, for the choices that mix variants. An op that the run has no row of is missing whole. The op "network" is
// the same work once more, run as one: it stands beside this sum, not in it.
const kWholeNetwork = "network";
function wholeNetwork(network, everything) {
  const totals = everything.filter((total) => total.op !== kWholeNetwork);
  const all = networkProblems.filter((use) => use.network === network && use.op !== kWholeNetwork && lets("op", use.op)).length;
  const dtypes = new Set(totals.map((total) => total.dtype));
  const ops = new Set(totals.map((total) => total.op));
  if (ops.size < 2) return [];
  return [...dtypes].flatMap((dtype) => [kOwnBest, kFastest].map((choice) => {
    const parts = totals.filter((total) => total.choice === choice && total.dtype === dtype);
    const timed = parts.reduce((sum, total) => sum + total.problems - total.missing, 0);
    return {network, op: "all ops", dtype, choice, sum: parts.reduce((sum, total) => sum + total.sum, 0), problems: all, missing: all - timed};
  }).filter((total) => total.missing < total.problems));
}

function totalBars(group) {
  const {op, dtype, problems} = group[0];
  const complete = group.filter((total) => total.missing === 0);
  const own = complete.find((total) => total.choice === kOwnBest);
  const longest = Math.max(...group.map((total) => total.sum));
  const made = [element("h3", {class: "op"}, `${op} `, element("span", {class: "muted"}, `${dtype}, ${problems} problem${problems === 1 ? "" : "s"}`))];
  for (const total of group) {
    const colour = total.choice === kOwnBest ? "var(--roof)" : total.choice === kFastest ? "var(--datasheet)" : `var(--kind-${total.kind})`;
    const whole = total.missing === 0;
    made.push(bar({
      label: whole ? total.choice : `${total.choice} (${total.problems - total.missing} of ${total.problems})`, share: total.sum / longest,
      value: formatNumber(total.sum), colour, classes: `${whole ? "" : "incomplete"} ${total.choice === kOwnBest ? "best" : ""}`,
      ratio: own && whole && total.kind === "baseline" && own.sum > 0 ? total.sum / own.sum : null,
      title: whole ? undefined : `no time of ${total.missing} of its ${total.problems} problems: not comparable`,
    }));
  }
  return made;
}

function drawTotals() {
  const totals = networkTotals();
  const networks = valuesOf.network.filter((network) => totals.some((total) => total.network === network));
  if (firstNetwork >= networks.length) firstNetwork = 0;
  const go = (first) => {
    firstNetwork = first;
    drawTotals();
  };
  replaceChildren(byId("totals-controls"), [
    segments("choices", [["main", "ours and baselines"], ["all", "every variant"]], state.choices, (choices) => change({choices})),
    element("span", {class: "muted"}, "×: a baseline's total over ours"),
    ...(networks.length > kNetworksAPage ? pager(firstNetwork, kNetworksAPage, networks.length, go) : []),
  ]);
  const isMain = (total) => total.kind === undefined || total.kind === "baseline";
  replaceChildren(byId("total-cards"), networks.slice(firstNetwork, firstNetwork + kNetworksAPage).map((network) => {
    const ofNetwork = totals.filter((total) => total.network === network);
    const card = element("div", {class: "bars network", "data-network": network}, element("h3", {class: "title"}, network));
    const groups = new Map();
    for (const total of [...wholeNetwork(network, ofNetwork), ...ofNetwork]) {
      if (state.choices === "main" && !isMain(total)) continue;
      const key = `${total.op}|${total.dtype}`;
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(total);
    }
    for (const group of groups.values()) card.append(...totalBars(group));
    return card;
  }));
  if (networks.length === 0) replaceChildren(byId("total-cards"), [element("p", {class: "muted"}, "No row of this selection belongs to a network.")]);
}
onChange(drawTotals);
