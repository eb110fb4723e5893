// The page's data, text and numbers. Text of the run reaches the page as text nodes alone, never as markup.
const page = JSON.parse(document.getElementById("data").textContent);

const byId = (id) => document.getElementById(id);

// element("td", {class: "number"}, "text", child): functions become listeners, undefined attributes are left out.
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== undefined && child !== null));
  return made;
}

function replaceChildren(parent, children) {
  parent.replaceChildren(...children);
}

// Plotly reads markup in its texts.
function plotText(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

// A column as it is stored: texts as indices into a dictionary, numbers as they are.
function decodeColumn(column) {
  return Array.isArray(column) ? column : column.index.map((i) => column.values[i]);
}

function decodeRecords(table, names) {
  const columns = names.map((name) => decodeColumn(table[name]));
  return columns[0].map((_, i) => Object.fromEntries(names.map((name, c) => [name, columns[c][i]])));
}

// What a problem in an element type is called, as in C++ (ProblemId::name).
const problemName = ({op, problem, dtype}) => `${op}/${problem}/${dtype}`;

// Four digits at most, thousands apart: 1,467  179.5  9.15  0.0039.
function formatNumber(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2);
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  const digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : 4;
  return value.toLocaleString("en-US", {minimumFractionDigits: size >= 1 ? digits : 0, maximumFractionDigits: digits});
}

// A rate in its unit with an SI prefix: 4278 GB/s -> "4.28 TB/s", 906578 GFLOP/s -> "907 TFLOP/s".
function formatRate(value, unit) {
  const prefixes = ["G", "T", "P"];
  let step = 0;
  while (value >= 1000 && step + 1 < prefixes.length) {
    value /= 1000;
    ++step;
  }
  return `${Number(value.toPrecision(3))} ${prefixes[step]}${unit.slice(1)}`;
}

const inTheDark = window.matchMedia("(prefers-color-scheme: dark)");
const theme = () => (inTheDark.matches ? "dark" : "light");
const surface = () => page.style.surface[theme()];
const kindStyle = (kind) => page.style.kinds[kind] ?? page.style.kinds.host;

function copyButton(text) {
  const button = element("button", {type: "button", class: "copy", click: async () => {
    await copyText(text);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }}, "Copy");
  return button;
}

// The clipboard's own interface is refused to pages from a file in some browsers.
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = element("textarea", {style: "position:fixed;opacity:0"});
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

const commandBlock = (text) => element("div", {class: "command"}, element("pre", {}, element("code", {}, text)), copyButton(text));

// A row of buttons of which one is pressed. `choose` gets the chosen value.
function segments(label, options, current, choose) {
  const group = element("span", {class: "segments", role: "group", "aria-label": label}, element("span", {class: "muted"}, label));
  const inner = element("span", {});
  for (const [value, text] of options)
    inner.append(element("button", {type: "button", "data-value": value, "aria-pressed": String(value === current), click: () => choose(value)}, text));
  group.append(inner);
  return group;
}

// What has one key, list by list, in the order met.
function groupBy(list, keyOf) {
  const groups = new Map();
  for (const item of list) {
    const key = JSON.stringify(keyOf(item));
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(item);
  }
  return [...groups.values()];
}

// A page of a list, which begins at `place.first`, and the buttons that lead to others; `draw` shows another one.
function pageOf(list, size, place, draw) {
  if (place.first >= list.length) place.first = 0;
  const {first} = place, count = list.length, last = Math.min(first + size, count);
  const go = (to) => {
    place.first = to;
    draw();
  };
  const buttons = [
    element("button", {type: "button", class: "previous", disabled: first === 0, click: () => go(Math.max(0, first - size))}, "Previous"),
    element("span", {class: "range"}, count === 0 ? "none" : `${(first + 1).toLocaleString("en-US")}–${last.toLocaleString("en-US")} of ${count.toLocaleString("en-US")}`),
    element("button", {type: "button", class: "next", disabled: last >= count, click: () => go(first + size)}, "Next"),
  ];
  return {items: list.slice(first, last), buttons};
}

// Lines of texts and numbers; columns from `numbersFrom` on stand to the right.
function simpleTable(head, lines, numbersFrom) {
  const cellClass = (i) => (i >= numbersFrom ? "number" : i === 3 ? "reason" : undefined);
  return element("div", {class: "scroll"}, element("table", {},
    element("thead", {}, element("tr", {}, ...head.map((text, i) => element("th", {class: i >= numbersFrom ? "number" : undefined}, text)))),
    element("tbody", {}, ...lines.map((line) => element("tr", {}, ...line.map((value, i) => {
      const text = typeof value === "number" ? value.toLocaleString("en-US") : value;
      return element("td", {class: cellClass(i), title: typeof value === "string" ? value : undefined}, text);
    }))))));
}

const block = (title, ...content) => element("div", {class: "block"}, element("h3", {}, title), ...content);
