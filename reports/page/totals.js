// Totals of a forward pass, as the program adds them up (reports/totals/totals.h): by one variant, by our fastest of each problem, or by the
// fastest of all. Choices are made by cold time, as in plan.csv; the sum is of the time that is shown.
const kNetworksAPage = 6;
const networkPage = {first: 0};
const kOwnBest = "own best", kFastest = "fastest", kAllOps = "all ops";

// A choice that mixes kinds is shown where the filter lets all of them through. The order: what mixes, then the variants.
function shownTotals() {
  const kinds = new Set(rows.map((row) => row.kind)), own = [...kinds].filter((kind) => kind !== "baseline");
  const letsKinds = {[kOwnBest]: own.every((kind) => lets("kind", kind)), [kFastest]: [...kinds].every((kind) => lets("kind", kind))};
  const shown = page.totals.filter((total) => lets("network", total.network) && lets("dtype", total.dtype) &&
    (total.op === kAllOps ? state.op.size === 0 : lets("op", total.op)) && (total.kind ? lets("kind", total.kind) : letsKinds[total.choice]));
  const order = [kOwnBest, kFastest];
  return shown.map((total) => ({...total, sum: total[state.time], missing: total.missing[state.time]}))
    .filter((total) => total.missing < total.problems)
    .sort((a, b) => (b.op === kAllOps) - (a.op === kAllOps) || (b.kind === "") - (a.kind === "") || order.indexOf(a.choice) - order.indexOf(b.choice));
}

function totalBars(group) {
  const {op, dtype, problems} = group[0];
  const complete = group.filter((total) => total.missing === 0);
  const own = complete.find((total) => total.choice === kOwnBest);
  const longest = Math.max(...group.map((total) => total.sum));
  const made = [element("h3", {class: "op"}, `${op} `, element("span", {class: "muted"}, `${dtype}, ${problems} problem${problems === 1 ? "" : "s"}`))];
  const judged = group.find((total) => total.choice === kOwnBest);
  if (judged && judged.won + judged.lost + judged.equal + judged.unresolved > 0)
    made.push(element("p", {class: "muted"}, `Against the fastest baseline, warm: ${judged.won} won, ${judged.lost} lost, ${judged.equal} equal, ` +
      `${judged.unresolved} unresolved${judged.worst === null ? "" : `; worst ratio ${judged.worst.toFixed(2)}`}${judged.shortcuts > 0 ?
        `. Without ${judged.shortcuts} with a shortcut: ${formatNumber(judged.plain[state.time])}` : ""}.`));
  const summed = (what, sum, ratio) => `, ${what} ${formatNumber(sum)} in sum${ratio === null ? "" : ` (it takes ${ratio.toFixed(3)} of that)`}`;
  for (const {choice, warm, launches} of group.filter((total) => total.launches && total.kind !== ""))
    made.push(element("p", {class: "muted launches"}, `${choice}: warm ${formatNumber(warm)}; ${launches.covered} of its ${launches.all} launches have a row` +
      summed("warm", launches.warm, launches.over) +
      `${launches.over_weights_cold === null ? "" : summed("weights cold", launches.weights_cold, launches.over_weights_cold)}.`));
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
  const totals = shownTotals();
  const networks = valuesOf.network.filter((network) => totals.some((total) => total.network === network));
  const {items, buttons} = pageOf(networks, kNetworksAPage, networkPage, drawTotals);
  replaceChildren(byId("totals-controls"), [
    segments("choices", [["main", "ours and baselines"], ["all", "every variant"]], state.choices, (choices) => change({choices})),
    element("span", {class: "muted"}, "×: a baseline's total over ours"),
    ...(networks.length > kNetworksAPage ? buttons : []),
  ]);
  const isMain = (total) => total.kind === "" || total.kind === "baseline" || state.kind.size > 0;  // kinds that were asked for
  replaceChildren(byId("total-cards"), items.map((network) => {
    const ofNetwork = totals.filter((total) => total.network === network);
    const card = element("div", {class: "bars network", "data-network": network}, element("h3", {class: "title"}, network),
                         ofNetwork[0].set ? element("p", {class: "muted"}, "A set of problems, not a network.") : null);
    const listed = ofNetwork.filter((total) => state.choices !== "main" || isMain(total));
    for (const group of groupBy(listed, ({op, dtype}) => [op, dtype])) card.append(...totalBars(group));
    return card;
  }));
  if (networks.length === 0) replaceChildren(byId("total-cards"), [element("p", {class: "muted"}, "No row of this selection belongs to a network.")]);
}
onChange(drawTotals);
