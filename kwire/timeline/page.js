// The page: an overview, lanes of bars on a canvas, and a panel. Only what is visible is drawn, a pixel of a lane once, so
// the cost of a frame does not grow with the capture.
const $ = (id) => document.getElementById(id);
const LABEL = 210, AXIS = 28, GRAPH = 44, TOP = AXIS + GRAPH, BAR = 11, LEVELS = 3;
const ERROR = 1, ROUTINE = 2, UNANSWERED = 4, WAITS = 8;

let data, rows = [], height = 0, palette = {}, byPacket;
let view = {from: 0, to: 1}, selected = -1, matching = null, hidden = new Set(), folded = new Set(), pending = false;

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

const chunks = new Map();
function chunkOf(index) {
  const number = Math.floor(index / data.chunk);
  if (!chunks.has(number)) chunks.set(number, unpack($(`details-${number}`).textContent));
  return chunks.get(number);
}
const detailsOf = async (index) => (await chunkOf(index))[index % data.chunk];

// Text

const pad = (number, width = 2) => String(number).padStart(width, "0");
function clock(us, step = 1) {
  const at = data.begin_us + us, date = new Date(Math.floor(at / 1000));
  const base = `${pad(date.getUTCHours())}:${pad(date.getUTCMinutes())}:${pad(date.getUTCSeconds())}`;
  if (step >= 1e6) return base;
  const micros = pad(((at % 1e6) + 1e6) % 1e6 | 0, 6);
  return `${base}.${step >= 1000 ? micros.slice(0, 3) : micros}`;
}
const span = (us) => us >= 1e6 ? `${(us / 1e6).toFixed(us < 1e7 ? 2 : 1)} s` : us >= 1000 ? `${(us / 1000).toFixed(1)} ms` : `${Math.round(us)} us`;
const size = (bytes) => bytes >= 1e6 ? `${(bytes / 1e6).toFixed(1)} MB` : bytes >= 1000 ? `${(bytes / 1000).toFixed(1)} kB` : `${Math.round(bytes)} B`;
const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
// Names come from the wire: control and bidirectional characters are shown as escapes.
const visible = (text) => text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g,
  (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = visible(String(text));
  if (className) made.className = className;
  return made;
}

// What is where

function lowerBound(indexes, time) {
  let low = 0, high = indexes.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (data.at[indexes[middle]] < time) low = middle + 1; else high = middle;
  }
  return low;
}

function prepare() {
  data.count = data.at.length;
  data.end = Math.max(1, ...data.lanes.map((lane) => lane.closed ?? 0));
  data.level = new Uint8Array(data.count);
  data.lanes.forEach((lane) => { lane.bars = []; lane.longest = 0; lane.levels = 1; lane.free = []; });
  for (let i = 0; i < data.count; i++) {
    const lane = data.lanes[data.lane[i]], until = data.at[i] + Math.max(0, data.took[i]);
    let level = lane.free.findIndex((time) => time <= data.at[i]);
    if (level < 0) level = Math.min(lane.free.length, LEVELS - 1);
    lane.free[level] = Math.max(until, lane.free[level] ?? 0);
    data.level[i] = level;
    lane.levels = Math.max(lane.levels, level + 1);
    lane.longest = Math.max(lane.longest, data.took[i]);
    lane.bars.push(i);
    data.end = Math.max(data.end, until);
  }
  byPacket = new Map();
  data.packets.forEach((numbers, index) => numbers.forEach((number) => byPacket.has(number) || byPacket.set(number, index)));
  layOut();
}

function layOut() {
  rows = [];
  let y = TOP;
  const add = (row, rowHeight) => { rows.push({...row, y, height: rowHeight}); y += rowHeight; };
  for (const ribbon of data.ribbons) add({ribbon}, 18);
  for (const client of data.clients) {
    add({client}, 22);
    if (!folded.has(client.name)) for (const number of client.lanes) add({lane: data.lanes[number]}, data.lanes[number].levels * (BAR + 1) + 6);
  }
  height = y + 8;
  $("space").style.height = `${Math.max(0, height - $("scroll").clientHeight)}px`;
}

function colours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["back", "fore", "dim", "line", "soft", "mark", "bad", "warn", "select", "joining", "stable", "open", "committed", "aborted",
    "failed", ...data.families.map((_, number) => `c${number}`)]) palette[name] = style.getPropertyValue(`--${name}`).trim();
}

function context(canvas) {
  const scale = window.devicePixelRatio || 1, width = canvas.clientWidth, tall = canvas.clientHeight;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(tall * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(tall * scale);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, tall);
  pen.font = "11px system-ui, 'DejaVu Sans', sans-serif";
  pen.textBaseline = "middle";
  return [pen, width, tall];
}

const isShown = (i) => !hidden.has(data.family[i]);
const isDim = (i) => matching !== null && !matching[i];
const isBad = (i) => (data.flags[i] & ERROR) && !(data.flags[i] & ROUTINE);

// Drawing

function draw() {
  pending = false;
  const began = performance.now();
  window.kwireDrawn = 0;
  drawLanes();
  drawOverview();
  window.kwireFrameMs = performance.now() - began;  // for tests, as kwireDrawn, the bars of this frame
}
function redraw() {
  if (!pending) { pending = true; requestAnimationFrame(draw); }
}

function drawOverview() {
  const [pen, width, tall] = context($("overview"));
  const columns = Math.max(1, Math.floor(width / 3));
  if (!data.heights || data.heights.columns !== columns || data.heights.stale) {
    const counts = Array.from({length: columns}, () => new Uint32Array(data.families.length + 1));
    for (let i = 0; i < data.count; i++) {
      if (!isShown(i) || isDim(i)) continue;
      const column = counts[Math.min(columns - 1, Math.floor(data.at[i] / data.end * columns))];
      column[data.family[i]]++;
      if (isBad(i)) column[data.families.length]++;
    }
    data.heights = {columns, counts, most: Math.max(1, ...counts.map((one) => one.reduce((a, b) => a + b, 0) - one.at(-1)))};
  }
  data.heights.counts.forEach((column, number) => {
    let y = tall;
    for (let family = 0; family < data.families.length; family++) {
      if (!column[family]) continue;
      const part = Math.max(1, column[family] / data.heights.most * (tall - 6));
      pen.fillStyle = palette[`c${family}`];
      pen.fillRect(number * 3, y - part, 3, part);
      y -= part;
    }
    if (column.at(-1)) { pen.fillStyle = palette.bad; pen.fillRect(number * 3, 0, 3, 4); }
  });
  const left = view.from / data.end * width, right = view.to / data.end * width;
  pen.globalAlpha = .55;
  pen.fillStyle = palette.back;
  pen.fillRect(0, 0, left, tall);
  pen.fillRect(right, 0, width - right, tall);
  pen.globalAlpha = 1;
  pen.strokeStyle = palette.mark;
  pen.strokeRect(left + .5, .5, Math.max(2, right - left - 1), tall - 1);
}

const laneWidth = () => $("lanes").clientWidth - LABEL;
const xOf = (time) => LABEL + (time - view.from) / (view.to - view.from) * laneWidth();
const timeAt = (x) => view.from + (x - LABEL) / laneWidth() * (view.to - view.from);

function drawLanes() {
  const canvas = $("lanes");
  canvas.style.height = `${$("scroll").clientHeight}px`;
  const [pen, width, tall] = context(canvas), scroll = $("scroll").scrollTop;
  drawGrid(pen, width, tall);
  pen.save();
  pen.beginPath();
  pen.rect(0, TOP, width, tall - TOP);
  pen.clip();
  for (const row of rows) {
    const y = row.y - scroll;
    if (y + row.height < TOP || y > tall) continue;
    if (row.ribbon) drawRibbon(pen, row, y, width);
    else if (row.client) drawClient(pen, row, y, width);
    else drawLane(pen, row, y, width);
  }
  pen.restore();
  drawGraph(pen, width);
  drawFlags(pen, width);
}

function drawGrid(pen, width, tall) {
  const shown = view.to - view.from, wanted = shown / Math.max(1, laneWidth() / 110);
  const power = 10 ** Math.floor(Math.log10(wanted)), step = Math.max(1, [1, 2, 5, 10].find((one) => one * power >= wanted) * power);
  pen.fillStyle = palette.dim;
  pen.strokeStyle = palette.line;
  pen.textAlign = "left";
  const origin = data.begin_us % step;
  for (let time = Math.ceil((view.from + origin) / step) * step - origin; time <= view.to; time += step) {
    const x = Math.round(xOf(time)) + .5;
    pen.beginPath();
    pen.moveTo(x, 0);
    pen.lineTo(x, tall);
    pen.stroke();
    pen.fillText(clock(time, step), x + 4, 9);
  }
  pen.fillText(`${span(shown)} shown`, 10, 9);
}

function label(pen, text, x, y, room) {
  let shown = visible(text);
  if (pen.measureText(shown).width > room) {
    let least = 0, most = shown.length;
    while (least < most) { const middle = (least + most + 1) >> 1; if (pen.measureText(`${shown.slice(0, middle)}…`).width > room) most = middle - 1; else least = middle; }
    shown = `${shown.slice(0, least)}…`;
  }
  pen.fillText(shown, x, y);
}

function drawRibbon(pen, row, y, width) {
  pen.fillStyle = palette.dim;
  label(pen, `${row.ribbon.kind} ${row.ribbon.name}`, 10, y + 9, LABEL - 18);
  for (const [from, to, state, text] of row.ribbon.spans) {
    const left = Math.max(LABEL, xOf(from)), right = Math.min(width, xOf(to ?? data.end));
    if (right < LABEL || left > width) continue;
    pen.fillStyle = palette[state];
    pen.fillRect(left, y + 2, Math.max(1.5, right - left - .5), 14);
    if (right - left > 44) { pen.fillStyle = palette.fore; label(pen, text, left + 4, y + 9, right - left - 8); }
  }
}

function drawClient(pen, row, y, width) {
  pen.fillStyle = palette.soft;
  pen.fillRect(0, y + 1, width, row.height - 2);
  pen.fillStyle = palette.fore;
  const {name, software, lanes} = row.client;
  pen.textAlign = "left";
  label(pen, `${folded.has(name) ? "▸" : "▾"} ${name}${software ? `   ${software}` : ""}   ${count(lanes.length, "connection")}`, 8, y + row.height / 2, width - 20);
}

function drawLane(pen, row, y, width) {
  const lane = row.lane;
  pen.fillStyle = palette.dim;
  pen.textAlign = "left";
  label(pen, `#${lane.number} > ${lane.ends[1]}`, 20, y + row.height / 2, LABEL - 28);
  const begin = Math.max(LABEL, xOf(lane.opened ?? 0)), end = Math.min(width, xOf(lane.closed ?? data.end));
  pen.fillStyle = palette.line;
  if (end > begin) pen.fillRect(begin, y + row.height - 2, end - begin, 1);
  if (lane.closed !== null && end < width && end >= LABEL) {
    pen.fillStyle = lane.by === "broker" ? palette.warn : palette.dim;
    pen.fillRect(end, y + 2, 1.5, row.height - 3);
  }
  const {bars} = lane, drawn = new Array(LEVELS).fill(-1), drawnBad = new Array(LEVELS).fill(-1), drawnDim = new Array(LEVELS).fill(-1);
  for (let at = lowerBound(bars, view.from - lane.longest); at < bars.length; at++) {
    const i = bars[at];
    if (data.at[i] > view.to) break;
    if (!isShown(i)) continue;
    const took = Math.max(0, data.took[i]), left = xOf(data.at[i]), right = Math.max(left + 2, xOf(data.at[i] + took));
    if (right < LABEL) continue;
    const level = data.level[i], pixel = Math.floor(right), bad = isBad(i) && !isDim(i);
    if (isDim(i) && pixel <= drawnDim[level]) continue;
    if (pixel <= drawn[level] && i !== selected && !(bad && pixel > drawnBad[level])) continue;
    drawBar(pen, i, Math.max(LABEL, left), right, y + 2 + level * (BAR + 1), bad);
    if (!isDim(i)) drawn[level] = pixel; else drawnDim[level] = pixel;
    if (bad) drawnBad[level] = pixel;
  }
}

function drawBar(pen, i, left, right, y, bad) {
  window.kwireDrawn++;
  pen.globalAlpha = isDim(i) ? .12 : data.flags[i] & WAITS ? .6 : 1;
  pen.fillStyle = palette[`c${data.family[i]}`];
  pen.fillRect(left, y, right - left, BAR);
  pen.globalAlpha = isDim(i) ? .12 : 1;
  if (bad || data.flags[i] & UNANSWERED) {
    pen.fillStyle = palette.bad;
    if (data.flags[i] & UNANSWERED) pen.fillRect(left, y + BAR / 2 - 1, 8, 2);
    if (bad) { pen.fillRect(left, y + BAR - 3, right - left, 3); pen.fillRect(left, y, 1.5, BAR); }
  }
  pen.globalAlpha = 1;
  if (right - left > 60 && !isDim(i)) {
    pen.fillStyle = palette.back;
    pen.textAlign = "left";
    label(pen, data.apis[data.api[i]], left + 4, y + BAR / 2 + .5, right - left - 6);
  }
  if (i === selected) {
    pen.strokeStyle = palette.fore;
    pen.lineWidth = 2;
    pen.strokeRect(left - 1.5, y - 1.5, right - left + 3, BAR + 3);
    pen.lineWidth = 1;
  }
}

function visibleRange() {
  // Bars are in the order of their times.
  const find = (time) => { let low = 0, high = data.count; while (low < high) { const middle = (low + high) >> 1; if (data.at[middle] < time) low = middle + 1; else high = middle; } return low; };
  return [find(view.from), find(view.to)];
}

function drawGraph(pen, width) {
  const what = $("graph").value, columns = Math.max(1, Math.floor(laneWidth() / 4)), seconds = (view.to - view.from) / columns / 1e6;
  const sums = new Float64Array(columns), times = what === "p95" ? Array.from({length: columns}, () => []) : null;
  const [first, last] = visibleRange();
  for (let i = first; i < last; i++) {
    if (!isShown(i) || isDim(i)) continue;
    const column = Math.min(columns - 1, Math.floor((data.at[i] - view.from) / (view.to - view.from) * columns));
    if (what === "requests") sums[column] += 1 / seconds;
    else if (what === "bytes") sums[column] += (data.asked[i] + data.got[i]) / seconds;
    else if (what === "errors") sums[column] += isBad(i) ? 1 / seconds : 0;
    else if (data.took[i] >= 0) times[column].push(data.took[i] / 1000);
  }
  if (times) times.forEach((one, column) => { one.sort((a, b) => a - b); sums[column] = one.length ? one[Math.min(one.length - 1, Math.floor(one.length * .95))] : 0; });
  const most = Math.max(...sums, 0);
  pen.fillStyle = what === "errors" ? palette.bad : palette.mark;
  pen.globalAlpha = .75;
  if (most > 0) sums.forEach((value, column) => { if (value) { const part = Math.max(1, value / most * (GRAPH - 8)); pen.fillRect(LABEL + column * 4, TOP - 4 - part, 3, part); } });
  pen.globalAlpha = 1;
  pen.fillStyle = palette.dim;
  pen.textAlign = "left";
  const shown = what === "bytes" ? `${size(most)}/s` : what === "p95" ? `${most.toFixed(1)} ms` : `${most.toFixed(most < 10 ? 1 : 0)}/s`;
  pen.fillText(`${$("graph").selectedOptions[0].textContent}: at most ${shown}`, 10, AXIS + GRAPH / 2);
  pen.fillStyle = palette.line;
  pen.fillRect(0, TOP - 1, width, 1);
}

function drawFlags(pen, width) {
  for (const finding of data.findings) {
    const x = xOf(finding.at);
    if (x < LABEL || x > width) continue;
    pen.fillStyle = finding.level === "error" ? palette.bad : palette.warn;
    pen.beginPath();
    pen.moveTo(x, AXIS - 1);
    pen.lineTo(x - 5, AXIS - 10);
    pen.lineTo(x + 5, AXIS - 10);
    pen.fill();
  }
}

// Moving

function show(from, to) {
  const least = 20, width = Math.min(Math.max(to - from, least), data.end * 1.02);
  const middle = (from + to) / 2, begin = Math.min(Math.max(middle - width / 2, -data.end * .01), data.end * 1.01 - width);
  view = {from: begin, to: begin + width};
  hideTip();
  redraw();
}
function zoom(factor, around = (view.from + view.to) / 2) {
  show(around - (around - view.from) * factor, around + (view.to - around) * factor);
}
const fit = () => show(-data.end * .01, data.end * 1.01);
const pan = (share) => { const by = (view.to - view.from) * share; show(view.from + by, view.to + by); };

function reveal(i) {
  const until = data.at[i] + Math.max(0, data.took[i]), width = view.to - view.from;
  if (data.at[i] < view.from || data.at[i] > view.to) show(data.at[i] - width / 3, data.at[i] + width * 2 / 3);
  if (until - data.at[i] < width / 2000 && width > 40) {
    const wanted = Math.max(40, (until - data.at[i]) * 100);
    if (wanted < width / 50) show(data.at[i] - wanted / 3, data.at[i] + wanted * 2 / 3);
  }
  const lane = data.lanes[data.lane[i]], client = data.clients.find((one) => one.lanes.includes(data.lane[i]));
  if (folded.delete(client.name)) layOut();
  const row = rows.find((one) => one.lane === lane), scroll = $("scroll");
  if (row.y - scroll.scrollTop < TOP + 4) scroll.scrollTop = row.y - TOP - 30;
  if (row.y + row.height - scroll.scrollTop > scroll.clientHeight) scroll.scrollTop = row.y + row.height - scroll.clientHeight + 30;
}

async function select(i, {move = false} = {}) {
  selected = i;
  if (move && i >= 0) reveal(i);
  redraw();
  if (i < 0) { showSummary(); return; }
  const details = await detailsOf(i);
  if (selected === i) showExchange(i, details);
}

const isChosen = (i) => isShown(i) && !isDim(i);
function step(direction) {
  const bars = selected < 0 ? null : data.lanes[data.lane[selected]].bars;
  if (!bars) {
    const [first] = visibleRange();
    for (let i = first; i < data.count; i++) if (isChosen(i)) return select(i, {move: true});
    return undefined;
  }
  for (let at = bars.indexOf(selected) + direction; at >= 0 && at < bars.length; at += direction)
    if (isChosen(bars[at])) return select(bars[at], {move: true});
  return undefined;
}
function stepLane(direction) {
  if (selected < 0) { $("scroll").scrollTop += direction * 40; redraw(); return; }
  const lanes = data.clients.flatMap((client) => client.lanes);
  for (let at = lanes.indexOf(data.lane[selected]) + direction; at >= 0 && at < lanes.length; at += direction) {
    const bars = data.lanes[lanes[at]].bars.filter(isChosen);
    if (!bars.length) continue;
    const near = Math.min(lowerBound(bars, data.at[selected]), bars.length - 1);
    const before = Math.max(0, near - 1), time = data.at[selected];
    select(Math.abs(data.at[bars[before]] - time) < Math.abs(data.at[bars[near]] - time) ? bars[before] : bars[near], {move: true});
    return;
  }
}
function nextError(direction) {
  for (let n = 1; n <= data.count; n++) {
    const i = (((selected < 0 ? (direction > 0 ? -1 : 0) : selected) + direction * n) % data.count + data.count) % data.count;
    if (isBad(i) && isChosen(i)) return select(i, {move: true});
  }
  return undefined;
}

// The panel

function tree(value, name, open) {
  const key = name === undefined ? [] : [element("span", name, "key"), document.createTextNode(": ")];
  if (value === null || typeof value !== "object") {
    const line = element("div");
    line.append(...key, visible(typeof value === "string" ? JSON.stringify(value) : String(value)));
    return line;
  }
  const entries = Object.entries(value), made = element("details"), head = element("summary");
  head.append(...key, Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`);
  made.append(head);
  made.open = open > 0;
  // Branches are built when they are opened.
  const fill = () => { if (made.open && made.childElementCount === 1) for (const [one, inner] of entries) made.append(tree(inner, one, open - 1)); };
  made.addEventListener("toggle", fill);
  fill();
  return made;
}

function button(text, act, title) {
  const made = element("button", text);
  if (title) made.title = title;
  made.addEventListener("click", act);
  return made;
}
function facts(pairs) {
  const list = element("dl");
  for (const [name, value] of pairs) if (value !== "" && value !== undefined) list.append(element("dt", name, "dim"), element("dd", value));
  return list;
}

function showExchange(i, details) {
  const panel = $("panel"), lane = data.lanes[data.lane[i]];
  panel.replaceChildren();
  panel.scrollTop = 0;
  panel.append(element("h2", `${data.apis[data.api[i]]}${data.version[i] >= 0 ? ` v${data.version[i]}` : ""}`));
  panel.append(element("p", data.text[i], isBad(i) ? "bad" : ""));
  const bar = element("div", undefined, "buttons");
  bar.append(button("← previous", () => step(-1), "of this connection (left arrow)"), button("next →", () => step(1), "of this connection (right arrow)"),
    button("only this connection", () => setFilter(`conn == ${lane.number}`)), button("close", () => select(-1), "Esc"));
  panel.append(bar);
  panel.append(facts([
    ["at", `${clock(data.at[i])} (+${span(data.at[i])})`], ["took", data.took[i] >= 0 ? span(data.took[i]) : "no response in the capture"],
    ["client", `${lane.client}  ${lane.software}`.trim()], ["connection", `#${lane.number}  ${lane.ends[0]} > ${lane.ends[1]}`],
    ["packets", data.packets[i].join(", ")], ["bytes", `${size(data.asked[i])} asked, ${size(data.got[i])} answered`],
  ]));
  for (const side of ["request", "response"]) {
    panel.append(element("h3", `${side[0].toUpperCase()}${side.slice(1)}`));
    const found = details[side];
    if (!found) { panel.append(element("p", "not in the capture", "dim")); continue; }
    for (const problem of found.problems ?? []) panel.append(element("p", problem, "bad"));
    const box = element("div", undefined, "tree");
    box.append(tree(found.message, "message", 3));
    for (const part of ["batches", "nested"]) if (found[part]) box.append(tree(found[part], part, 2));
    box.append(tree(found.header, "header", 0));
    panel.append(box);
    if (side === "request" && found.message)
      panel.append(button("copy as `kwire send`", () => navigator.clipboard?.writeText(sendCommand(i, found.message))));
  }
}
function sendCommand(i, message) {
  const json = JSON.stringify(message).replaceAll("'", "'\\''");
  return `kwire send ${data.apis[data.api[i]]}@${data.version[i]} '${json}'`;
}

function showSummary() {
  const panel = $("panel");
  panel.replaceChildren(element("h2", data.findings.length ? `Findings (${data.findings.length})` : "No findings"));
  if (!data.findings.length) panel.append(element("p", "The linter's warnings and errors would be here.", "dim"));
  for (const finding of data.findings) {
    const made = button("", () => { const i = finding.packets.map((number) => byPacket.get(number)).find((one) => one !== undefined); if (i !== undefined) select(i, {move: true}); });
    made.className = "finding";
    made.append(element("b", `${finding.level} ${finding.id} ${finding.name} `, finding.level === "error" ? "bad" : "warn"), element("span", finding.subject),
      element("p", finding.text), element("p", `fix: ${finding.fix}`, "dim"));
    panel.append(made);
  }
  panel.append(element("h3", "Slowest"));
  const slowest = Array.from(data.took.keys()).filter((i) => isChosen(i) && !(data.flags[i] & WAITS)).sort((a, b) => data.took[b] - data.took[a]).slice(0, 8);
  for (const i of slowest) {
    const line = button(`${span(data.took[i])}  ${data.apis[data.api[i]]}  ${data.text[i]}`, () => select(i, {move: true}));
    line.className = "finding";
    panel.append(line);
  }
}

function showHelp() {
  const keys = [["← →", "previous and next exchange of the connection"], ["↑ ↓", "the exchange at this time on another connection"], ["+ −", "zoom in, out"],
    ["Shift ← →", "move"], ["0", "the whole capture"], ["/", "filter"], ["Esc", "leave the filter, the selection, the filter's text"], ["e E", "next, previous error"],
    ["f", "fold or unfold all clients"], ["?", "this list"]];
  const list = element("dl");
  for (const [key, what] of keys) { const name = element("dt"); name.append(element("kbd", key)); list.append(name, element("dd", what)); }
  $("panel").replaceChildren(element("h2", "Keys"), list, element("p", "Wheel: scroll; with Ctrl or Shift: zoom, move. Drag: move. A click on a client folds it.", "dim"),
    element("h3", "Filter"), element("p", `Names: ${FILTER_NAMES.join(", ")}, request.FIELD, response.FIELD, records.key, .value, .offset.`),
    element("p", 'api in (Produce, Fetch) and topic ~ "order*" and ms > 100 and error != NONE', "tree"));
}

// Filter

let filterRun = 0;
async function applyFilter() {
  const text = $("filter").value.trim(), run = ++filterRun;
  $("wrong").hidden = true;
  history.replaceState(null, "", text ? `#filter=${encodeURIComponent(text)}` : location.pathname + location.search);
  let found = null;
  if (text) {
    let filter;
    try { filter = compileFilter(text, data.known_apis); } catch (error) {
      if (!(error instanceof FilterError)) throw error;
      $("wrong").textContent = error.message;
      $("wrong").hidden = false;
      return;
    }
    found = new Uint8Array(data.count);
    for (let from = 0; from < data.count; from += data.chunk) {
      const details = filter.needsDetails ? await chunkOf(from) : null;
      if (run !== filterRun) return;
      for (let i = from; i < Math.min(from + data.chunk, data.count); i++) found[i] = filter.test(data.values[i], details?.[i - from]) ? 1 : 0;
    }
  }
  matching = found;
  $("matches").textContent = found ? `${found.reduce((a, b) => a + b, 0).toLocaleString("en")} of ${count(data.count, "exchange")}` : count(data.count, "exchange");
  if (data.heights) data.heights.stale = true;
  if (selected < 0) showSummary();
  redraw();
}
function setFilter(text) {
  $("filter").value = text;
  applyFilter();
}

// Pointer

function barAt(x, y) {
  const at = y + $("scroll").scrollTop, row = y < TOP ? null : rows.find((one) => at >= one.y && at < one.y + one.height);
  if (!row?.lane || x < LABEL) return [row, -1];
  const near = (view.to - view.from) / laneWidth() * 4, time = timeAt(x), {bars, longest, levels} = row.lane;
  const level = Math.min(levels - 1, Math.max(0, Math.floor((at - row.y - 2) / (BAR + 1))));
  let best = -1, distance = Infinity;
  for (let n = lowerBound(bars, time - longest - near); n < bars.length && data.at[bars[n]] <= time + near; n++) {
    const i = bars[n], until = data.at[i] + Math.max(0, data.took[i]);
    if (!isChosen(i) || data.level[i] !== level || until < time - near) continue;
    const away = time < data.at[i] ? data.at[i] - time : time > until ? time - until : 0;
    if (away < distance || (away === distance && isBad(i))) { best = i; distance = away; }
  }
  return [row, best];
}
const hideTip = () => { $("tip").hidden = true; };
function tipFor(event) {
  const box = $("lanes").getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  const [row, i] = barAt(x, y), tip = $("tip"), lines = [];
  if (i >= 0) {
    lines.push(element("b", `${data.apis[data.api[i]]}${data.version[i] >= 0 ? ` v${data.version[i]}` : ""}  ${data.took[i] >= 0 ? span(data.took[i]) : "no response"}`));
    lines.push(element("div", data.text[i], isBad(i) ? "bad" : ""), element("div", `${clock(data.at[i])}  ${size(data.asked[i])} > ${size(data.got[i])}`, "dim"));
  } else if (row?.ribbon && x >= LABEL) {
    const found = row.ribbon.spans.find(([from, to]) => timeAt(x) >= from && timeAt(x) <= (to ?? data.end));
    if (found) lines.push(element("b", `${row.ribbon.kind} ${row.ribbon.name}`), element("div", `${found[3]}, ${span((found[1] ?? data.end) - found[0])}${found[1] === null ? ", not ended in the capture" : ""}`));
  } else if (row?.lane && x < LABEL) {
    lines.push(element("b", `connection ${row.lane.number}`), element("div", `${row.lane.ends[0]} > ${row.lane.ends[1]}${row.lane.by ? `, closed by the ${row.lane.by}` : ""}`));
  } else if (y < AXIS) {
    const flag = data.findings.find((one) => Math.abs(xOf(one.at) - x) < 6);
    if (flag) lines.push(element("b", `${flag.level} ${flag.id} ${flag.name}`), element("div", `${flag.subject}: ${flag.text}`));
  }
  tip.hidden = !lines.length;
  tip.replaceChildren(...lines);
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18}px`;
}

function listen() {
  const lanes = $("lanes"), overview = $("overview");
  let drag = null;
  lanes.addEventListener("pointerdown", (event) => { drag = {x: event.clientX, view, moved: false}; lanes.setPointerCapture(event.pointerId); });
  lanes.addEventListener("pointermove", (event) => {
    if (!drag) { tipFor(event); return; }
    const by = (drag.x - event.clientX) / laneWidth() * (drag.view.to - drag.view.from);
    if (Math.abs(event.clientX - drag.x) > 3) drag.moved = true;
    if (drag.moved) show(drag.view.from + by, drag.view.to + by);
  });
  lanes.addEventListener("pointerup", (event) => {
    const moved = drag?.moved;
    drag = null;
    if (moved) return;
    const box = lanes.getBoundingClientRect(), y = event.clientY - box.top, x = event.clientX - box.left, [row, i] = barAt(x, y);
    const flag = y < AXIS && data.findings.find((one) => Math.abs(xOf(one.at) - x) < 6);
    if (flag) { select(-1); return; }
    if (row?.client) { folded.delete(row.client.name) || folded.add(row.client.name); layOut(); redraw(); } else select(i);
  });
  lanes.addEventListener("pointerleave", hideTip);
  lanes.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) { event.preventDefault(); zoom(event.deltaY > 0 ? 1.25 : .8, timeAt(event.clientX - lanes.getBoundingClientRect().left)); }
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) { event.preventDefault(); pan((event.deltaX || event.deltaY) / 1000); }
  }, {passive: false});
  $("scroll").addEventListener("scroll", () => { hideTip(); redraw(); });
  let from = null;
  const timeOf = (event) => event.offsetX / overview.clientWidth * data.end;
  overview.addEventListener("pointerdown", (event) => { from = timeOf(event); overview.setPointerCapture(event.pointerId); });
  overview.addEventListener("pointermove", (event) => { if (from !== null && Math.abs(timeOf(event) - from) > data.end / 200) show(Math.min(from, timeOf(event)), Math.max(from, timeOf(event))); });
  overview.addEventListener("pointerup", (event) => {
    if (from !== null && Math.abs(timeOf(event) - from) <= data.end / 200) { const half = (view.to - view.from) / 2; show(from - half, from + half); }
    from = null;
  });
  $("filter").addEventListener("input", applyFilter);
  $("graph").addEventListener("change", redraw);
  $("in").addEventListener("click", () => zoom(.5));
  $("out").addEventListener("click", () => zoom(2));
  $("fit").addEventListener("click", fit);
  $("help").addEventListener("click", showHelp);
  addEventListener("resize", () => { layOut(); redraw(); });
  addEventListener("hashchange", fromHash);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { colours(); redraw(); });
  addEventListener("keydown", pressed);
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target === $("filter")) {
    if (event.key === "Escape" || event.key === "Enter") $("filter").blur();
    return;
  }
  if (event.target.tagName === "SELECT") return;
  const act = {
    ArrowLeft: () => event.shiftKey ? pan(-.2) : step(-1), ArrowRight: () => event.shiftKey ? pan(.2) : step(1),
    ArrowUp: () => stepLane(-1), ArrowDown: () => stepLane(1), "+": () => zoom(.5, centre()), "=": () => zoom(.5, centre()), "-": () => zoom(2, centre()),
    0: fit, "/": () => { $("filter").focus(); $("filter").select(); }, e: () => nextError(1), E: () => nextError(-1), "?": showHelp,
    Escape: () => { hideTip(); if (selected >= 0) select(-1); else if ($("filter").value) setFilter(""); else showSummary(); },
    f: () => { if (folded.size) folded.clear(); else data.clients.forEach((one) => folded.add(one.name)); layOut(); redraw(); },
  }[event.key];
  if (act) { event.preventDefault(); act(); }
}
function centre() {
  const time = selected >= 0 ? data.at[selected] : NaN;
  return time >= view.from && time <= view.to ? time : (view.from + view.to) / 2;
}

function fromHash() {
  const found = /^#filter=(.*)$/.exec(location.hash);
  const text = found ? decodeURIComponent(found[1]) : "";
  if (text !== $("filter").value.trim()) $("filter").value = text;
  return applyFilter();
}

function showHeader() {
  $("name").textContent = data.name;
  $("about").textContent = data.about.join("  ·  ");
  data.families.forEach((name, number) => {
    const many = data.family.filter((one) => one === number).length;
    if (!many) return;
    const made = button("", () => {
      hidden.delete(number) || hidden.add(number);
      made.setAttribute("aria-pressed", String(!hidden.has(number)));
      if (data.heights) data.heights.stale = true;
      redraw();
    }, "Show or hide");
    const mark = element("i");
    mark.style.background = `var(--c${number})`;
    made.append(mark, `${name} ${many.toLocaleString("en")}`);
    made.setAttribute("aria-pressed", "true");
    $("legend").append(made);
  });
}

(async () => {
  try {
    data = await unpack($("data").textContent);
  } catch (error) {
    document.body.textContent = `This page needs a browser of 2023 or newer (DecompressionStream): ${error}`;
    return;
  }
  prepare();
  colours();
  showHeader();
  listen();
  await fromHash();
  showSummary();
  fit();
  draw();
  window.kwireReady = true;
})();
