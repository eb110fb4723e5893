// One roofline an op: rate over arithmetic intensity, both logarithmic, under the measured and the datasheet's ceilings.
const kCeilingLabels = {dram_copy: "DRAM", dram_read: "DRAM, read only", l2: "L2", fma_fp32: "fp32 FMA"};
const ceilingLabel = (name) => kCeilingLabels[name] ?? name.replace(/_/g, " ");
const kRoofMemory = "dram_copy";  // the roof that pct_of_roof is against
const kMargin = {l: 58, r: 12, t: 26, b: 44};  // pixels; the top has the tools

const isMemory = (ceiling) => ceiling.unit === "GB/s";

function intensityOf(row) {
  if (state.intensity === "compulsory") return row.ai;
  const bytes = (row.dram_read_bytes ?? 0) + (row.dram_write_bytes ?? 0);
  return row.dram_read_bytes !== null && bytes > 0 ? row.flops / bytes : null;
}

// {x FLOP/B, y FLOP/s}; null where the row has no place under a roof (no time, no FLOPs, no counters).
function placeOf(row) {
  const time = timeOf(row), x = intensityOf(row);
  return time > 0 && row.flops > 0 && x > 0 ? {x, y: (row.flops / time) * 1e6} : null;
}

function ceilingsOf(opRows) {
  if (state.pipes === "all") return page.ceilings;
  const named = new Set(opRows.map((row) => page.ceiling_of[row.bound]));
  return page.ceilings.filter((ceiling) => (isMemory(ceiling) ? ceiling.name !== "dram_read" : named.has(ceiling.name)));
}

// Lines of one set of rates (measured, or the datasheet's): diagonals up to the highest pipe, pipes from where the fastest memory
// meets them.
function ceilingLines(ceilings, rate, from, to) {
  const memories = ceilings.filter((c) => isMemory(c) && rate(c)), pipes = ceilings.filter((c) => !isMemory(c) && rate(c));
  const highest = Math.max(...pipes.map(rate)), fastest = Math.max(...memories.map(rate));
  const lines = [];
  for (const memory of memories) {
    const end = pipes.length > 0 ? Math.min(to, highest / rate(memory)) : to;
    if (end > from) lines.push({ceiling: memory, x: [from, end], y: [rate(memory) * from * 1e9, rate(memory) * end * 1e9]});
  }
  for (const pipe of pipes)
    lines.push({ceiling: pipe, x: [Math.max(from, memories.length > 0 ? rate(pipe) / fastest : from), to], y: [rate(pipe) * 1e9, rate(pipe) * 1e9]});
  return lines;
}

function lineTrace(line, dashed) {
  const colours = surface();
  const main = line.ceiling.name === kRoofMemory || !isMemory(line.ceiling);
  return {x: line.x, y: line.y, mode: "lines", hoverinfo: "skip", showlegend: false, name: line.ceiling.name,
          line: {color: dashed ? colours.datasheet : colours.roof, width: dashed ? 1 : main ? 1.6 : 1, dash: dashed ? "4px,3px" : "solid"}};
}

function labelText(ceiling) {
  const sheet = ceiling.datasheet ? ` (datasheet ${formatRate(ceiling.datasheet, ceiling.unit).split(" ")[0]})` : "";
  return plotText(`${ceilingLabel(ceiling.name)} ${formatRate(ceiling.value, ceiling.unit)}${sheet}`);
}

// Labels stand on their measured line. Pipes whose lines nearly coincide share one.
function labels(lines, plot, range) {
  const colours = surface();
  const perDecade = {x: plot.width / (range.x[1] - range.x[0]), y: plot.height / (range.y[1] - range.y[0])};
  const angle = -Math.atan2(perDecade.y, perDecade.x) * 180 / Math.PI;
  const font = {size: 10.5, color: colours.muted};
  const made = [];
  for (const {ceiling, x, y} of lines.filter((line) => isMemory(line.ceiling))) {
    const lowest = Math.max(range.x[0], Math.log10(x[0]), range.y[0] - Math.log10(y[0] / x[0]));
    const highest = Math.min(range.x[1], Math.log10(x[1]), range.y[1] - Math.log10(y[0] / x[0]));
    const half = 4 * labelText(ceiling).length * Math.cos(angle * Math.PI / 180) / perDecade.x / 1.4 + 0.1;  // decades of half a text
    if (highest - lowest < 2 * half) continue;
    const at = ceiling.name === kRoofMemory ? lowest + half : highest - half;
    made.push({x: at, y: at + Math.log10(y[0] / x[0]), text: labelText(ceiling), textangle: angle, xanchor: "center", yanchor: "middle",
               xshift: 8 * Math.sin(angle * Math.PI / 180), yshift: 8 * Math.cos(angle * Math.PI / 180), showarrow: false, font});
  }
  const pipes = lines.filter((line) => !isMemory(line.ceiling)).sort((a, b) => a.y[0] - b.y[0]);
  for (let first = 0; first < pipes.length;) {
    let last = first;
    while (last + 1 < pipes.length && Math.log10(pipes[last + 1].y[0] / pipes[first].y[0]) * perDecade.y < 12) ++last;
    const shared = pipes.slice(first, last + 1);
    const text = shared.length === 1 ? labelText(shared[0].ceiling)
      : plotText(shared.map((p) => `${ceilingLabel(p.ceiling.name)} ${formatRate(p.ceiling.value, p.ceiling.unit)}`).join(", "));
    made.push({x: range.x[1], y: Math.log10(shared[shared.length - 1].y[0]), text, xanchor: "right", yanchor: "bottom", yshift: 5, showarrow: false, font});
    first = last + 1;
  }
  return made;
}

function pointTraces(opRows) {
  return kindOrder.map((kind) => {
    const points = opRows.filter((row) => row.kind === kind && placeOf(row));
    const places = points.map(placeOf);
    return {x: places.map((p) => p.x), y: places.map((p) => p.y), customdata: points.map((row) => row.index), mode: "markers", type: "scatter",
            name: plotText(kindStyle(kind).label), meta: kind, hoverinfo: "none", showlegend: false,
            marker: {color: kindStyle(kind)[theme()], symbol: kindStyle(kind).plotly, size: 6.5, opacity: 0.8, line: {width: kind === "naive" ? 1.5 : 0}}};
  }).filter((trace) => trace.x.length > 0);
}

function axis(title, range) {
  const colours = surface();
  return {type: "log", range, title: {text: title, font: {size: 11.5}, standoff: 6}, tickformat: "~s", dtick: 1, gridcolor: colours.grid, zeroline: false,
          linecolor: colours.line, showline: true, tickfont: {size: 10.5}};
}

function figureOf(opRows, plot) {
  const points = pointTraces(opRows);
  const xs = points.flatMap((trace) => trace.x), ys = points.flatMap((trace) => trace.y);
  const ceilings = ceilingsOf(opRows);
  const memory = ceilings.find((c) => c.name === kRoofMemory);
  const pipes = ceilings.filter((c) => !isMemory(c));
  // Wide enough that every ridge, where bandwidth meets arithmetic, is in the picture.
  const ridge = memory && pipes.length > 0 ? Math.max(...pipes.map((p) => p.value)) / memory.value : xs.reduce((a, b) => Math.max(a, b), 0);
  const from = xs.reduce((a, b) => Math.min(a, b), Infinity) / 2, to = 4 * xs.reduce((a, b) => Math.max(a, b), ridge);
  const measured = ceilingLines(ceilings, (c) => c.value, from, to), datasheet = ceilingLines(ceilings, (c) => c.datasheet, from, to);
  const top = Math.max(...[...measured, ...datasheet].map((line) => line.y[1]), ys.reduce((a, b) => Math.max(a, b), 0));
  const bottom = ys.reduce((a, b) => Math.min(a, b), Infinity);
  const range = {x: [Math.log10(from), Math.log10(to)], y: [Math.log10(bottom / 2), Math.log10(top * 2.2)]};
  return {traces: [...datasheet.map((line) => lineTrace(line, true)), ...measured.map((line) => lineTrace(line, false)), ...points],
          measured, range, plot};
}

function layoutOf(figure) {
  const colours = surface();
  return {
    margin: kMargin, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "closest", hoverdistance: 14,
    modebar: {bgcolor: "rgba(0,0,0,0)", color: colours.datasheet, activecolor: colours.accent},
    dragmode: window.innerWidth > 640 ? "zoom" : false, font: {family: getComputedStyle(document.body).fontFamily, color: colours.muted, size: 11},
    xaxis: axis(state.intensity === "compulsory" ? "FLOP per compulsory byte" : "FLOP per DRAM byte, counted", figure.range.x),
    yaxis: axis("FLOP/s", figure.range.y), annotations: labels(figure.measured, figure.plot, figure.range),
  };
}

const kPlotConfig = {displaylogo: false, responsive: true, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
                     toImageButtonOptions: {format: "svg", filename: "roofline"}};

function drawPanel(panel) {
  panel.stale = false;
  const plot = panel.querySelector(".plot");
  const size = {width: plot.clientWidth - kMargin.l - kMargin.r, height: plot.clientHeight - kMargin.t - kMargin.b};
  const figure = figureOf(panel.opRows, size);
  Plotly.react(plot, figure.traces, layoutOf(figure), {...kPlotConfig, displayModeBar: window.innerWidth > 640 ? "hover" : false});
  if (plot.listens) return;
  plot.listens = true;
  const rowAt = (data) => rows[data.points[0].customdata];
  plot.on("plotly_hover", (data) => showCard(rowAt(data), {x: data.event.clientX, y: data.event.clientY}, false));
  plot.on("plotly_unhover", leaveCard);
  plot.on("plotly_click", (data) => showCard(rowAt(data), {x: data.event.clientX, y: data.event.clientY}, true));
  plot.on("plotly_relayout", (changed) => {
    if ("annotations" in changed) return;
    const axes = plot.layout, range = {x: axes.xaxis.range, y: axes.yaxis.range};
    Plotly.relayout(plot, {annotations: labels(figureOf(panel.opRows, size).measured, size, range)});
  });
}

// Panels are drawn when they come near the window: only what is looked at costs time.
const panelWatch = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    entry.target.near = entry.isIntersecting;
    if (entry.isIntersecting && entry.target.stale) drawPanel(entry.target);
  }
}, {rootMargin: "300px"});

const panels = new Map();  // op -> its element

function panelOf(op) {
  if (!panels.has(op)) {
    const panel = element("div", {class: "panel", "data-op": op}, element("h3", {}, op), element("div", {class: "plot"}), element("p", {class: "caption"}));
    panels.set(op, panel);
    panelWatch.observe(panel);
  }
  return panels.get(op);
}

function captionOf(opRows, drawn) {
  const timed = opRows.filter((row) => timeOf(row) !== null).length;
  const parts = [`${drawn.toLocaleString("en-US")} rows`];
  if (timed > drawn) parts.push(`${(timed - drawn).toLocaleString("en-US")} ok rows have no ${state.intensity === "compulsory" ? "FLOPs" : "DRAM counters"} and are not drawn`);
  if (opRows.length > timed) parts.push(`${(opRows.length - timed).toLocaleString("en-US")} have no ${state.time} time`);
  return parts.join("; ");
}

const kMarks = {circle: "●", "circle-open": "○", "triangle-up": "▲", diamond: "◆", square: "■", "triangle-down": "▼"};

function drawKey() {
  const kinds = kindOrder.filter((kind) => shown.some((row) => row.kind === kind && row.status === "ok"));
  replaceChildren(byId("roofline-key"), kinds.map((kind) => element("span", {},
    element("span", {style: `color:var(--kind-${kind})`}, kMarks[kindStyle(kind).plotly]), kindStyle(kind).label)));
}

function drawRoofline() {
  replaceChildren(byId("roofline-controls"), [
    segments("intensity by", [["compulsory", "compulsory bytes"], ["measured", "counted DRAM bytes"]], state.intensity, (intensity) => change({intensity})),
    segments("pipes", [["own", "of these rows"], ["all", "all"]], state.pipes, (pipes) => change({pipes})),
  ]);
  drawKey();
  const place = byId("panels");
  if (page.no_plotly) {
    replaceChildren(place, [element("p", {class: "notice"}, page.no_plotly)]);
    return;
  }
  const used = [];
  for (const op of valuesOf.op) {
    const opRows = shown.filter((row) => row.op === op);
    const drawn = opRows.filter(placeOf).length;
    if (opRows.length === 0 || drawn === 0) continue;
    const panel = panelOf(op);
    panel.opRows = opRows;
    panel.stale = true;
    panel.querySelector(".caption").textContent = captionOf(opRows, drawn);
    used.push(panel);
  }
  // Panels that stay are not taken out of the page: their plots would lose their size.
  for (const panel of [...place.children]) if (!used.includes(panel)) panel.remove();
  used.forEach((panel, i) => { if (place.children[i] !== panel) place.insertBefore(panel, place.children[i] ?? null); });
  if (used.length === 0) replaceChildren(place, [element("p", {class: "muted"}, "No row of this selection has a place on a roofline.")]);
  for (const panel of used) if (panel.near) drawPanel(panel);
}
onChange(drawRoofline);
