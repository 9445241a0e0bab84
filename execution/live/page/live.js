"use strict";

// The page of the live view: draws a fabric once, then changes what a frame or a state changes.

const SVG = "http://www.w3.org/2000/svg";
const GPU = { width: 54, height: 24 };
const GAP = 46; // beside a GPU, at least: the NIC links of its column
const LANE = 5; // both directions of a NIC link
const LETTER = 7; // of a switch's name
const ROW = 66;
const HB_LEVEL = 26; // from leaf HB switches down to those of the second level
const SWITCH = 24;
const TOP = 12;
const LEFT = 14;
// A queue of this many bytes has the largest dot.
const LARGEST_QUEUE = 200000;
const MOST_BUSY = 8;

const at = (id) => document.getElementById(id);
let fabric = null;
let cables = [];
let nodes = new Map();
let state = { broken: {}, degraded: {}, failed: [], blackouts: [], interactive: false, done: 0 };
let frame = null;
let counted = null; // the state with the last frame
let begun = null; // bytes carried when the present execution began, if the page saw that
let whole = 0; // bytes of the last execution, if it was of the same case and seen whole

function svg(parent, name, attributes = {}) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent.append(made);
  return made;
}

function item(parent, name, text, className = "") {
  const made = document.createElement(name);
  made.textContent = text;
  made.className = className;
  parent.append(made);
  return made;
}

// Geometry: rails are columns, HB domains are rows, switches without a rail stand on top, by tier.

function widthOf(node) {
  return Math.max(52, 12 + LETTER * node.name.length);
}

function layout() {
  const columns = Math.max(
    fabric.domain_size, ...fabric.nodes.map((node) => (node.column ?? -1) + 1));
  const above = fabric.nodes.filter((n) => n.tier !== undefined && n.column === null);
  const tiers = [...new Set(above.map((n) => n.tier))].sort((one, other) => other - one);
  const leavesOf = (column) => fabric.nodes.filter(
    (n) => n.kind !== "gpu" && n.kind !== "hb-switch" && n.column === column);
  const most = Math.max(1, ...[...Array(columns).keys()].map((c) => leavesOf(c).length));
  // Wide enough for the NIC links of a column, and for the names of the widest tier.
  const gap = Math.max(GAP, 22 + LANE * fabric.domains * fabric.lanes);
  const inTier = (tier) => above.filter((node) => node.tier === tier);
  const widths = tiers.map(inTier).map(
    (own) => own.length * (8 + Math.max(...own.map(widthOf))));
  const pitch = Math.max(GPU.width + gap, Math.max(0, ...widths) / columns);
  const width = LEFT + columns * pitch + 10;
  const left = (column) => LEFT + column * pitch + (pitch + gap - GPU.width) / 2 - 8;
  const railTop = TOP + tiers.length * (SWITCH + 62);
  const gpuTop = railTop + most * (SWITCH + 10) + 22;
  const row = ROW + HB_LEVEL * Math.max(0, ...fabric.nodes.map((node) => node.level ?? 0));
  const places = new Map();
  tiers.forEach((tier, level) => {
    const own = inTier(tier);
    own.forEach((node, n) => {
      const x = LEFT + (n + 0.5) * ((width - LEFT) / own.length);
      const wide = widthOf(node);
      places.set(node.name, box(x - wide / 2, TOP + level * (SWITCH + 62), wide, SWITCH));
    });
  });
  for (let column = 0; column < columns; column++) {
    leavesOf(column).forEach((node, n) => {
      const y = railTop + n * (SWITCH + 10);
      places.set(node.name, box(left(column) - 8, y, GPU.width + 6, SWITCH));
    });
  }
  for (const node of fabric.nodes) {
    const y = gpuTop + node.row * row;
    if (node.kind === "gpu") {
      places.set(node.name, box(left(node.column), y, GPU.width, GPU.height));
    } else if (node.kind === "hb-switch") {
      const below = y + GPU.height + 16 + node.level * HB_LEVEL;
      const wide = (node.columns - 1) * pitch + GPU.width;
      places.set(node.name, box(left(node.first), below, wide, 15));
    }
  }
  return { places, width, height: gpuTop + fabric.domains * row + 4 };
}

function box(x, y, width, height) {
  return { x, y, width, height, middle: x + width / 2, bottom: y + height };
}

// The line of a link, shifted by `shift` so that its two directions lie beside each other.
function line(link, places, shift) {
  const lower = places.get(link.lower);
  const upper = places.get(link.upper);
  if (link.kind === "hb-link" || link.kind === "hb-trunk") {
    const x = lower.middle + shift;
    return [[x, lower.bottom], [x, upper.y]];
  }
  if (link.kind === "uplink") {
    const order = fabric.nodes.findIndex((n) => n.name === link.upper) % 5;
    return [[lower.middle + (order - 2) * 5 + shift, lower.y], [upper.middle + shift, upper.bottom]];
  }
  const row = fabric.nodes.find((n) => n.name === link.lower).row;
  // The nearest domain has the innermost line, so that lines do not cross.
  const x = lower.x - 8 - (row * fabric.lanes + link.lane) * LANE + shift;
  const y = lower.y + lower.height / 2 + (link.lane - (fabric.lanes - 1) / 2) * 7 + shift;
  return [[lower.x, y], [x, y], [x, upper.bottom + 7 + shift], [upper.middle + shift, upper.bottom]];
}

function path(points) {
  return "M" + points.map((point) => point.join(" ")).join("L");
}

function draw() {
  const picture = at("picture");
  picture.replaceChildren();
  cables = [];
  nodes = new Map();
  at("none").hidden = fabric !== null;
  at("legend").hidden = fabric === null;
  at("kind").textContent = fabric === null ? "" : fabric.kind;
  picture.style.display = fabric === null ? "none" : "block";
  if (fabric === null) return;
  const { places, width, height } = layout();
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  picture.style.minWidth = `${0.78 * width}px`;
  picture.style.maxWidth = `${Math.max(width * 1.6, 420)}px`;
  for (const link of fabric.links) cables.push(cable(picture, link, places));
  for (const node of fabric.nodes) nodes.set(node.name, drawNode(picture, node, places));
}

function cable(picture, link, places) {
  const group = svg(picture, "g", { class: "cable" });
  const up = svg(group, "path", { class: "use", d: path(line(link, places, -1.8)) });
  const down = svg(group, "path", { class: "use", d: path(line(link, places, 1.8)) });
  const ends = line(link, places, -1.8);
  const queues = [ends[0], line(link, places, 1.8).at(-1)].map(
    ([cx, cy]) => svg(group, "circle", { class: "queue", cx, cy, r: 0 }));
  svg(group, "path", { class: "hit", d: path(line(link, places, 0)) });
  clickable(group, link.name);
  return { group, up, down, queues, title: svg(group, "title"), link };
}

function drawNode(picture, node, places) {
  const place = places.get(node.name);
  const group = svg(picture, "g", { class: `node ${node.kind}` });
  svg(group, "rect", { x: place.x, y: place.y, width: place.width, height: place.height, rx: 4 });
  svg(group, "text", { x: place.middle, y: place.y + place.height / 2 }).textContent = node.name;
  clickable(group, node.name);
  return group;
}

function clickable(group, name) {
  group.dataset.name = name;
  group.addEventListener("click", () => openMenu(name));
  group.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      openMenu(name);
    }
  });
}

// What changes

// The present rate of a link, in bit/s.
function rateOf(link) {
  return state.degraded[link.name] ?? link.rate_bps;
}

function level(use) {
  const limits = [10, 250, 500, 750, 950];
  const step = limits.findIndex((limit) => use < limit);
  return step < 0 ? 5 : step;
}

function setClass(element, name) {
  if (element.getAttribute("class") !== name) element.setAttribute("class", name);
}

function radius(bytes) {
  return bytes <= 0 ? 0 : Math.max(1.5, 5.5 * Math.sqrt(Math.min(1, bytes / LARGEST_QUEUE)));
}

function showFrame() {
  if (fabric === null || frame === null || frame.use.length !== 2 * cables.length) return;
  cables.forEach((one, n) => {
    setClass(one.up, `use u${level(frame.use[2 * n])}`);
    setClass(one.down, `use u${level(frame.use[2 * n + 1])}`);
    one.queues.forEach((dot, end) => {
      const r = radius(frame.queued[2 * n + end]).toFixed(1);
      if (dot.getAttribute("r") !== r) dot.setAttribute("r", r);
    });
  });
  showBusiest();
  showLights();
  showWithin();
}

function showBusiest() {
  const busy = frame.use.map((use, n) => ({ use, n })).filter(({ use }) => use >= 10);
  busy.sort((one, other) => other.use - one.use);
  const rows = busy.slice(0, MOST_BUSY).map(({ use, n }) => {
    const { link } = cables[n >> 1];
    const [from, to] = n % 2 ? [link.upper, link.lower] : [link.lower, link.upper];
    const row = document.createElement("tr");
    item(row, "td", `${from} → ${to}`);
    item(row, "td", `${(use / 10).toFixed(0)}%`);
    item(row, "td", (use / 1000 * rateOf(link) / 1e6).toFixed(1));
    item(row, "td", kilobytes(frame.queued[n]));
    return row;
  });
  if (!rows.length) {
    const row = document.createElement("tr");
    item(row, "td", "No link carries data.");
    rows.push(row);
  }
  at("busiest").replaceChildren(...rows);
}

function kilobytes(bytes) {
  return bytes ? `${(bytes / 1000).toFixed(0)} kB` : "–";
}

function showLights() {
  light("cpu", frame.light, `cores ${percent(1 - frame.idle)} busy`);
  light("stolen", frame.stolen > 0.02 ? "warn" : "pass", `${percent(frame.stolen)} taken by others`);
  light("drops", "", `${frame.dropped} packets dropped`);
  light("moved", "", `${(frame.bps / 1e6).toFixed(0)} Mbit/s on all links`);
  light("page", "", `this page ${percent(frame.page_cpu, 1)} of a core`);
}

// What frames of another fabric have shown.
function forget() {
  at("busiest").replaceChildren();
  for (const id of ["cpu", "stolen", "drops", "moved", "page"]) light(id, "", "");
  showWithin();
}

function percent(share, digits = 0) {
  return `${(100 * share).toFixed(digits)}%`;
}

function light(id, verdict, text) {
  at(id).className = verdict;
  at(id).textContent = text;
}

// A step is a case; its executions carry the same bytes.
function countWithin() {
  const before = counted;
  counted = state;
  if (before === null || (before.step === state.step && before.done === state.done)) return;
  const isSame = before.step === state.step && before.done + 1 === state.done;
  whole = isSame && begun !== null ? frame.carried - begun : 0;
  begun = frame.carried;
}

// Bytes since the last execution ended, as a share of those of an execution before.
function showWithin() {
  const share = whole ? Math.min(1, (frame.carried - begun) / whole) : 0;
  at("within").hidden = !whole;
  at("within").value = share;
  at("within-text").textContent = whole ? `${percent(share)} of this execution` : "";
}

function showState() {
  at("step").textContent = state.ended ? "The run has ended." : state.step;
  at("progress").hidden = state.interactive || !state.executions;
  at("bar").max = state.executions || 1;
  at("bar").value = state.done;
  at("count").textContent = `${state.done} of ${state.executions} executions`;
  const lost = Object.keys(state.broken).filter((name) => !(name in state.degraded));
  const failed = new Set([...state.failed, ...lost]);
  cables.forEach(({ group, title, link }) => {
    group.classList.toggle("failed", failed.has(link.name));
    const rate = (rateOf(link) / 1e6).toFixed(0);
    title.textContent = `${link.name}, ${rate} Mbit/s${failed.has(link.name) ? ", not used" : ""}`;
  });
  nodes.forEach((group, name) => group.classList.toggle("broken", name in state.broken));
  for (const group of [...cables.map((one) => one.group), ...nodes.values()]) {
    const can = state.interactive && group.dataset.name in fabric.modes;
    for (const [key, value] of [["tabindex", "0"], ["role", "button"], ["aria-label", group.dataset.name]]) {
      can ? group.setAttribute(key, value) : group.removeAttribute(key);
    }
  }
  at("picture").classList.toggle("interactive", state.interactive);
  showControl();
  showBlackouts();
  showLines();
}

function showControl() {
  at("control").hidden = !state.interactive;
  if (!state.interactive) return;
  const names = state.workloads.map((name) => button(`Run ${name}`, ["run", name]));
  at("workloads").replaceChildren(...names, button("Stop", ["stop"]));
  const broken = Object.entries(state.broken);
  at("broken").replaceChildren(
    ...broken.map(([name]) => button(`Heal ${name}`, ["heal", name])));
  const said = state.said.slice(-12).reverse();
  at("said").replaceChildren(...said.map((text) => Object.assign(
    document.createElement("li"), { textContent: text })));
}

// A fault's strip of time: a row for each probed pair, a bar where none of its probes arrived.

const STRIP = { width: 340, names: 86, row: 13, foot: 18, right: 12 };

function showBlackouts() {
  at("dark").hidden = !state.blackouts.length;
  at("blackouts").replaceChildren(...[...state.blackouts].reverse().map(blackout));
}

function blackout(one) {
  const made = document.createElement("figure");
  const lasted = !one.probed ? "no affected pair has another path"
    : one.blackout_ms === null ? "a pair was not reached again" : milliseconds(one.blackout_ms);
  const caption = item(made, "figcaption", `${one.fault}: ${lasted}`);
  item(caption, "span", `; ${after("detected", one.detected_ms, "not detected")}, `
    + after("new paths", one.confirmed_ms, "no new paths"), "hint");
  if (one.probed) strip(made, one);
  return made;
}

function after(what, ms, never) {
  return ms === null ? never : `${what} after ${milliseconds(ms)}`;
}

function milliseconds(ms) {
  return `${ms.toFixed(0)} ms`;
}

function strip(parent, one) {
  const height = one.pairs.length * STRIP.row;
  const drawn = svg(parent, "svg", {
    viewBox: `0 0 ${STRIP.width} ${height + STRIP.foot}`, "aria-hidden": "true" });
  const moments = [one.detected_ms, one.confirmed_ms, ...one.pairs.flatMap((pair) => pair.slice(1))];
  const end = 1.1 * Math.max(10, ...moments.filter((ms) => ms !== null));
  const begin = -0.1 * end;
  const x = (ms) => STRIP.names
    + (STRIP.width - STRIP.right - STRIP.names) * (ms - begin) / (end - begin);
  one.pairs.forEach(([name, from, until], n) => {
    const y = n * STRIP.row;
    svg(drawn, "text", { x: 0, y: y + STRIP.row / 2 }).textContent = name.replace(">", " → ");
    if (from === null) return;
    const width = Math.max(1.5, x(until ?? end) - x(from));
    svg(drawn, "rect", { class: "lost", x: x(from), y: y + 2, width, height: STRIP.row - 4 });
  });
  for (const [ms, kind] of [[0, ""], [one.detected_ms, "detected"], [one.confirmed_ms, "confirmed"]]) {
    if (ms !== null) svg(drawn, "path", { class: `moment ${kind}`, d: `M${x(ms)} 0V${height + 4}` });
  }
  svg(drawn, "text", { x: x(0), y: height + 11, "text-anchor": "middle" }).textContent = "0";
  svg(drawn, "text", { x: x(end), y: height + 11, "text-anchor": "end" }).textContent = milliseconds(end);
}

function showLines() {
  at("cases").hidden = !state.verdicts.length;
  at("verdicts").replaceChildren(...state.verdicts.map((one) => Object.assign(
    document.createElement("li"),
    { textContent: verdictText(one), className: one.verdict })));
  at("journal").replaceChildren(...[...state.journal].reverse().map((one) => {
    const entry = document.createElement("li");
    item(entry, "span", `${((one.ns - state.journal_begun_ns) / 1e9).toFixed(3)} s`);
    item(entry, "span", one.text);
    return entry;
  }));
}

function verdictText(one) {
  return one.ratio === null ? one.case : `${one.case}: ratio ${one.ratio.toFixed(4)}`;
}

// Faults and workloads

function button(text, words) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.addEventListener("click", () => ask(words));
  return made;
}

async function ask(words) {
  at("menu").close();
  await fetch("ask", { method: "POST", body: JSON.stringify(words) });
}

function openMenu(name) {
  if (!state.interactive || !(name in fabric.modes)) return;
  at("menu-name").textContent = name;
  at("menu-facts").textContent = name in state.broken ? `Broken: ${state.broken[name]}.` : "";
  const choices = name in state.broken
    ? [button("Heal", ["heal", name])]
    : fabric.modes[name].map((mode) => button(`Break: ${mode}`, ["fault", name, mode]));
  at("menu-buttons").replaceChildren(...choices);
  at("menu").showModal();
}

// Events

const events = new EventSource("events");
events.addEventListener("fabric", (event) => {
  fabric = JSON.parse(event.data);
  frame = null;
  counted = null;
  begun = null;
  whole = 0;
  draw();
  forget();
});
events.addEventListener("state", (event) => {
  state = JSON.parse(event.data);
  showState();
  if (state.ended) events.close();
});
events.addEventListener("frame", (event) => {
  frame = JSON.parse(event.data);
  countWithin();
  requestAnimationFrame(showFrame);
});
events.addEventListener("open", () => { at("link").hidden = true; });
events.addEventListener("error", () => { at("link").hidden = false; });
