// What is shown: four filters that every view follows, and the choices of single views. All of it is in the address, so that a view can
// be sent to somebody.
const rows = decodeRecords(page.rows.columns, page.rows.names);
rows.forEach((row, index) => {
  row.index = index;
  row.networkCounts = new Map(row.networks.split(";").filter(Boolean).map((use) => {
    const colon = use.lastIndexOf(":");
    return [use.slice(0, colon), Number(use.slice(colon + 1))];
  }));
});
const networkProblems = decodeRecords(page.networks, ["network", "op", "problem", "count"]);

const kFilters = ["op", "network", "dtype", "kind"];
const state = {time: "cold", intensity: "compulsory", pipes: "own", order: "largest", choices: "main", columns: "main"};
for (const name of kFilters) state[name] = new Set();  // an empty set lets everything through

const kindOrder = Object.keys(page.style.kinds);
const valuesOf = {
  op: [...new Set(rows.map((row) => row.op))],
  network: [...new Set([...networkProblems.map((use) => use.network), ...rows.flatMap((row) => [...row.networkCounts.keys()])])],
  dtype: [...new Set(rows.map((row) => row.dtype))],
  kind: [...new Set(rows.map((row) => row.kind))].sort((a, b) => kindOrder.indexOf(a) - kindOrder.indexOf(b)),
};

const lets = (name, value) => state[name].size === 0 || state[name].has(value);

const isShown = (row) => lets("op", row.op) && lets("dtype", row.dtype) && lets("kind", row.kind) &&
  (state.network.size === 0 || [...state.network].some((network) => row.networkCounts.has(network)));

let shown = rows;
// Warm is as a pipeline runs it; serial has ordinary edges for everybody.
const kTimes = {cold: "time_cold_us", warm: "time_warm_us", serial: "time_warm_serial_us"};
const timeOf = (row) => (row.status !== "ok" ? null : row[kTimes[state.time]]);

const views = [];  // functions that draw; each reads `shown` and `state`
const onChange = (draw) => views.push(draw);

function drawAll() {
  shown = rows.filter(isShown);
  for (const draw of views) draw();
  writeAddress();
}

function change(part) {
  Object.assign(state, part);
  drawAll();
}

function toggle(name, value) {
  const chosen = state[name];
  if (!chosen.delete(value)) chosen.add(value);
  if (chosen.size === valuesOf[name].length) chosen.clear();
  drawAll();
}

function writeAddress() {
  const parts = new URLSearchParams();
  for (const name of kFilters) for (const value of state[name]) parts.append(name, value);
  if (state.time !== "cold") parts.set("time", state.time);
  const hash = parts.toString();
  if (hash !== location.hash.slice(1)) history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
}

function readAddress() {
  const parts = new URLSearchParams(location.hash.slice(1));
  for (const name of kFilters) state[name] = new Set(parts.getAll(name).filter((value) => valuesOf[name].includes(value)));
  state.time = Object.keys(kTimes).includes(parts.get("time")) ? parts.get("time") : "cold";
}

function filterSummary() {
  const parts = kFilters.filter((name) => state[name].size > 0).map((name) => [...state[name]].join(", "));
  return `${parts.length > 0 ? parts.join(" · ") : "all rows"}: ${shown.length.toLocaleString("en-US")} of ${rows.length.toLocaleString("en-US")}`;
}

function drawFilters() {
  const nav = byId("filters");
  const wasOpen = nav.querySelector("details")?.open ?? window.innerWidth > 640;
  const scrolled = nav.querySelector(".groups")?.scrollTop ?? 0;
  const groups = element("div", {class: "groups"});
  for (const name of kFilters) {
    if (valuesOf[name].length === 0) continue;
    const group = element("div", {class: "group", role: "group", "aria-label": name}, element("span", {class: "name"}, name));
    for (const value of valuesOf[name])
      group.append(element("button", {type: "button", class: "chip", "data-filter": name, "data-value": value,
                                      "aria-pressed": String(state[name].has(value)), click: () => toggle(name, value)}, value));
    groups.append(group);
  }
  const group = element("div", {class: "group"}, segments("time", [["cold", "cold"], ["warm", "warm"], ["serial", "warm, serial"]], state.time, (time) => change({time})));
  if (kFilters.some((name) => state[name].size > 0))
    group.append(element("button", {type: "button", class: "clear", click: () => {
      for (const name of kFilters) state[name].clear();
      drawAll();
    }}, "Clear filters"));
  groups.append(group);
  const details = element("details", {open: wasOpen}, element("summary", {}, filterSummary()), groups);
  replaceChildren(nav, [details]);
  groups.scrollTop = scrolled;
}
onChange(drawFilters);
