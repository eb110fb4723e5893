// The card that shows a whole row: beside the pointer while it is over a mark, kept open by a click. On a phone it rises from below.
function factText(row, name) {
  const value = row[name];
  if (value === null || value === undefined || value === "") return "";
  if (typeof value !== "number") return value;
  const {unit} = page.rows.about[name];
  return unit ? `${formatNumber(value)} ${unit}` : formatNumber(value);
}

function shellQuote(text) {
  return /^[A-Za-z0-9_=.,:\/+-]+$/.test(text) ? text : `'${text.replace(/'/g, `'\\''`)}'`;
}

// The command line that measures a case again, for a shell.
function commandOf(row) {
  const device = row.kind === "host" ? " --device host" : "";
  return `noisefloor run ${shellQuote(row.op)} --problem ${shellQuote(row.problem)} --dtype ${shellQuote(row.dtype)} ` +
    `--variant ${shellQuote(row.variant)}${device}`;
}

const fieldLabel = (name) => name.replace(/_(us|pct|mhz)$/, "").replace(/_/g, " ");

function statusText(row) {
  return row.reason ? `${row.status}: ${row.reason}` : row.status;
}

function fillCard(row, pinned) {
  const facts = element("dl", {class: "facts"});
  const blank = [];
  for (const name of page.rows.names) {
    const {head, wide, description} = page.rows.about[name];
    if (head) continue;
    const text = factText(row, name);
    if (text === "") {
      blank.push(fieldLabel(name));
      continue;
    }
    facts.append(element("div", {class: wide ? "wide" : undefined, title: description || undefined}, element("dt", {}, fieldLabel(name)), element("dd", {"data-field": name}, text)));
  }
  const card = byId("card");
  card.classList.toggle("pinned", pinned);
  replaceChildren(card, [
    element("h3", {}, `${row.variant} `, element("span", {class: "muted"}, `${row.kind}, ${row.dtype}`)),
    element("p", {class: "mono"}, `${row.op} ${row.problem}`),
    element("p", {class: row.status === "ok" ? "status" : "status bad"}, statusText(row)),
    pinned ? element("button", {type: "button", class: "close", click: hideCard}, "Close") : null,
    facts,
    blank.length > 0 ? element("p", {class: "blank"}, `Not measured: ${blank.join(", ")}`) : null,
    pinned ? commandBlock(commandOf(row)) : element("p", {class: "blank"}, "Click to keep this open, with its command line."),
  ].filter(Boolean));
  card.dataset.row = row.index;
  card.hidden = false;
  return card;
}

let pinnedRow = null;

// `at`: {x, y} in the window; without it the card is put in the middle.
function showCard(row, at, pinned) {
  if (pinnedRow !== null && !pinned) return;
  pinnedRow = pinned ? row : null;
  const card = fillCard(row, pinned);
  const {width, height} = card.getBoundingClientRect();
  const gap = 16;
  let left = (window.innerWidth - width) / 2;
  let top = (window.innerHeight - height) / 2;
  if (at) {
    left = at.x + gap + width < window.innerWidth ? at.x + gap : at.x - gap - width;
    top = at.y - height / 3;
  }
  card.style.left = `${Math.max(8, Math.min(left, window.innerWidth - width - 8))}px`;
  card.style.top = `${Math.max(8, Math.min(top, window.innerHeight - height - 8))}px`;
  if (pinned) card.querySelector(".close").focus({preventScroll: true});
}

function hideCard() {
  pinnedRow = null;
  byId("card").hidden = true;
}

function leaveCard() {
  if (pinnedRow === null) hideCard();
}

document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideCard(); });
document.addEventListener("pointerdown", (event) => {
  if (pinnedRow !== null && !byId("card").contains(event.target)) hideCard();
});
