// The head of the page and its environment; then everything is drawn.

function environmentMap() {
  return new Map(page.environment ?? []);
}

function drawHead() {
  const known = environmentMap();
  const parts = [["commit", "commit"], ["driver", "driver"], ["cuda_runtime", "CUDA"], ["compiler", ""], ["time_utc", ""]]
    .filter(([name]) => known.get(name))
    .map(([name, label]) => `${label} ${known.get(name)}`.trim());
  byId("subtitle").textContent = parts.join(" · ");

  const count = (keep) => rows.filter(keep).length;
  const wrong = count((row) => ["incorrect", "cuda_error", "implausible"].includes(row.status));
  const figures = [["rows ok", count((row) => row.status === "ok")], ["did not run", count((row) => row.status !== "ok") - wrong]];
  if (wrong > 0) figures.push(["incorrect or failed", wrong]);
  if (page.without_row.count > 0) figures.push(["without a row", page.without_row.count]);
  figures.push(["problems", new Set(rows.map(problemName)).size]);
  replaceChildren(byId("figures"), figures.map(([label, value]) =>
    element("div", {}, element("dt", {}, label), element("dd", {}, typeof value === "number" ? value.toLocaleString("en-US") : value))));

  const urgent = page.lacks.filter((lack) => lack.urgent).map((lack) => lack.text);
  if (wrong > 0) urgent.unshift(`${wrong === 1 ? "A row is" : `${wrong} rows are`} incorrect or failed on the device; the table says why.`);
  if (urgent.length > 0) replaceChildren(byId("notices"), [element("div", {class: "notice"}, ...urgent.map((text) => element("p", {}, text)))]);
}

function facts(pairs) {
  const list = element("dl", {class: "facts"});
  for (const [key, value] of pairs) {
    const text = value !== null && typeof value === "object" ? JSON.stringify(value) : String(value);
    if (text !== "") list.append(element("dt", {}, key.replace(/_/g, " ")), element("dd", {}, text));
  }
  return list;
}

function drawEnvironment() {
  const blocks = [];
  const known = environmentMap();
  if (page.environment) blocks.push(facts(page.environment.filter(([key]) => key !== "command_lines")));
  else blocks.push(element("p", {class: "muted"}, "env.json is not there."));
  const commands = known.get("command_lines");
  if (Array.isArray(commands))
    blocks.push(block("Command lines that wrote this run", ...commands.map((words) => commandBlock((Array.isArray(words) ? words : [words]).map((word) => shellQuote(String(word))).join(" ")))));
  blocks.push(block("Ceilings", simpleTable(["ceiling", "measured", "datasheet", "measured / datasheet"], page.ceilings.map((ceiling) => [
    ceilingLabel(ceiling.name), formatRate(ceiling.value, ceiling.unit), ceiling.datasheet ? formatRate(ceiling.datasheet, ceiling.unit) : "",
    ceiling.datasheet ? `${(100 * ceiling.value / ceiling.datasheet).toFixed(1)} %` : ""]), 1)));
  replaceChildren(byId("environment-list"), blocks);
}

drawHead();
drawGaps();
drawEnvironment();
readAddress();
drawAll();
window.addEventListener("hashchange", () => {
  readAddress();
  drawAll();
});
inTheDark.addEventListener("change", drawAll);
