// The trends of `noisefloor history`: a panel a series, changes marked, and the same as tables.
const kPanelsAPage = 12;
const view = {search: "", first: 0};
const percent = (change) => `${change.after >= change.before ? "+" : ""}${(100 * (change.after / change.before - 1)).toFixed(1)} %`;
const runOf = (series, i) => page.runs[series.runs[i]];
const manyDevices = new Set(page.runs.map((run) => run.device)).size > 1;

function shownSeries() {
  const words = view.search.toLowerCase().split(/\s+/).filter(Boolean);
  return page.series.filter((series) => words.every((word) => `${series.name} ${series.device}`.toLowerCase().includes(word)));
}

// Levels: one line between two changes, and a gap between lines.
function levels(series) {
  const cuts = [0, ...series.changes.map((change) => change.at), series.runs.length];
  const x = [], y = [];
  series.changes.forEach((change, i) => {
    if (i === 0) {
      x.push(0.75, change.at + 0.5, null);
      y.push(change.before, change.before, null);
    }
    x.push(change.at + 0.5, cuts[i + 2] + 0.25, null);
    y.push(change.after, change.after, null);
  });
  return {x, y};
}

function drawTrend(panel) {
  panel.stale = false;
  const {series} = panel, colours = surface(), palette = page.style.series[theme()];
  const present = series.values.map((value, i) => i).filter((i) => series.values[i] !== null);
  const level = levels(series);
  const traces = [
    {x: level.x, y: level.y, mode: "lines", hoverinfo: "skip", line: {color: colours.muted, width: 1.5}},
    {x: present.map((i) => i + 1), y: present.map((i) => series.values[i]), mode: "lines+markers", line: {color: palette[0], width: 1}, meta: "values",
     marker: {size: 7, color: present.map((i) => (series.changes.some((change) => change.at === i) ? palette[1] : palette[0]))},
     text: present.map((i) => plotText(`#${i + 1} ${runOf(series, i).time}\n${runOf(series, i).commit}: ${formatNumber(series.values[i])} µs`).replace("\n", "<br>")),
     hovertemplate: "%{text}<extra></extra>"},
  ];
  const highest = Math.max(...present.map((i) => series.values[i]));
  const layout = {
    margin: {l: 58, r: 12, t: 26, b: 36}, showlegend: false, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "closest",
    dragmode: window.innerWidth > 640 ? "zoom" : false, font: {family: getComputedStyle(document.body).fontFamily, color: colours.muted, size: 11},
    hoverlabel: {bgcolor: colours.panel, bordercolor: colours.line, font: {color: colours.ink}}, modebar: {bgcolor: "rgba(0,0,0,0)", color: colours.datasheet},
    xaxis: {range: [0.5, series.runs.length + 0.5], dtick: Math.ceil(series.runs.length / 12), tick0: 1, tickprefix: "#", gridcolor: colours.grid, zeroline: false},
    // From zero: a change looks as large as it is.
    yaxis: {range: [0, highest * 1.25], title: {text: "µs", standoff: 6}, gridcolor: colours.grid, zeroline: false},
    shapes: series.changes.map((change) => ({type: "line", x0: change.at + 0.5, x1: change.at + 0.5, yref: "paper", y0: 0, y1: 1, line: {color: palette[1], width: 1, dash: "4px,3px"}})),
    annotations: series.changes.map((change) => ({x: change.at + 0.5, y: 1, yref: "paper", yanchor: "bottom", showarrow: false, text: percent(change),
                                                  font: {size: 11, color: change.after > change.before ? colours.bad : colours.good}})),
  };
  Plotly.react(panel.querySelector(".plot"), traces, layout,
               {displaylogo: false, responsive: true, displayModeBar: false, toImageButtonOptions: {format: "svg", filename: "history"}});
}

const panelWatch = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting && entry.target.stale) drawTrend(entry.target);
}, {rootMargin: "300px"});

function trendPanel(series) {
  const changes = series.changes.map((change) => `${percent(change)} at #${change.at + 1} (${runOf(series, change.at).commit})`);
  const panel = element("div", {class: "panel", "data-series": series.name}, element("h3", {}, series.name, manyDevices ? element("span", {class: "muted"}, ` ${series.device}`) : null),
                        element("div", {class: "plot"}), element("p", {class: "caption"}, changes.length > 0 ? changes.join("; ") : "no change of level"));
  panel.series = series;
  panel.stale = true;
  return panel;
}

function drawTrends() {
  const {items, buttons} = pageOf(shownSeries(), kPanelsAPage, view, drawTrends);
  replaceChildren(byId("trend-pager"), buttons);
  panelWatch.disconnect();
  if (page.no_plotly) {
    replaceChildren(byId("panels"), [element("p", {class: "notice"}, page.no_plotly)]);
    return;
  }
  replaceChildren(byId("panels"), items.map(trendPanel));
  for (const panel of byId("panels").children) panelWatch.observe(panel);
}

replaceChildren(byId("trend-controls"), [
  element("input", {type: "search", id: "search", placeholder: "Search series", "aria-label": "Search series", input: (event) => {
    Object.assign(view, {search: event.target.value, first: 0});
    drawTrends();
  }}),
  element("span", {id: "trend-pager", class: "controls"}),
]);
byId("subtitle").textContent = `${page.runs.length} runs · ${page.series.length} series · ${page.time} times`;
if (manyDevices)
  replaceChildren(byId("notices"), [element("p", {class: "notice"}, "Runs of more than one device: no series mixes them.")]);
const changed = page.series.flatMap((series) => series.changes.map((change) => [
  series.name, series.device, `#${change.at + 1}`, runOf(series, change.at).commit, formatNumber(change.before), formatNumber(change.after), percent(change)]));
replaceChildren(byId("change-list"), [changed.length > 0 ? simpleTable(["series", "device", "run", "commit", "before µs", "after µs", "change"], changed, 4)
                                                         : element("p", {class: "muted"}, "No change of level in any series.")]);
replaceChildren(byId("run-list"), [simpleTable(["run", "time", "commit", "folder", "device", "driver"],
  page.runs.map((run) => [`#${run.number}`, run.time, run.commit, run.folder, run.device, run.driver]), 9)]);
drawTrends();
inTheDark.addEventListener("change", drawTrends);
