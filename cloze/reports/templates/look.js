// One state (layer, token, kind of attention, heads, part, view); every panel draws itself from it.
const data = JSON.parse(document.getElementById("data").textContent);
const at = id => document.getElementById(id);
const make = (tag, attributes = {}, ...inside) => {
  const one = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") one.className = value;
    else if (name.startsWith("on")) one.addEventListener(name.slice(2), value);
    else if (name === "w") one.style.setProperty("--w", value);
    else one.setAttribute(name, value);
  }
  one.append(...inside);
  return one;
};
const bytes = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
const FULL = 255, LINES = 48; // tokens up to which every line of the head view is drawn
for (const one of data.attention) {
  one.bytes = bytes(one.shares);
  if (one.kept) one.at = new Uint16Array(bytes(one.places).buffer);
  if (one.neurons) for (const side of ["queries", "keys"]) one.neurons[side] = new Int8Array(bytes(one.neurons[side]).buffer);
}
const word = id => data.vocabulary[id] ?? "?";
const count = data.layers;
const colour = (head, heads) => `hsl(${Math.round(360 * head / heads + 205) % 360} 62% var(--light))`;
document.documentElement.style.setProperty("--light", matchMedia("(prefers-color-scheme: dark)").matches ? "66%" : "42%");

const first = Object.keys(data.sequences)[0];
const state = {kind: 0, layer: count, side: data.lens?.rows ?? first, token: 0, heads: new Set(), part: "all", view: "lines"};
const own = data.sequences[state.side];
const masked = own.pieces.findIndex((piece, n) => own.parts[n] >= 0 && /^[\[<]mask[\]>]$/i.test(piece)), words = own.parts.slice(0, data.near.find(one => one.rows === state.side)?.tokens[0].length).flatMap((part, n) => part >= 0 && /[\p{L}\p{N}]/u.test(own.pieces[n]) ? [n] : []);
state.token = masked >= 0 ? masked : words.at(-1) ?? 0; // what people ask about first: the mask, or the last word
const kind = () => data.attention[state.kind];
const rowLayer = one => Math.min(one.shape[0] - 1, Math.max(0, state.layer - 1)); // attention of layer n makes states n + 1
const allHeads = () => { state.heads = new Set(Array.from({length: kind().shape[1]}, (_, head) => head)); };

// The row of attention of one head as numbers that sum to one.
function row(one, layer, head, query) {
  const [, heads, rows, columns] = one.shape, start = (layer * heads + head) * rows + query, made = new Float32Array(columns);
  if (!one.kept) for (let key = 0; key < columns; key++) made[key] = one.bytes[start * columns + key] / FULL;
  else for (let n = start * one.kept; n < (start + 1) * one.kept; n++) made[one.at[n]] = one.bytes[n] / FULL;
  return made;
}
const sees = (query, key) => {
  if (state.part === "all") return true;
  const one = kind(), [from, to] = [data.sequences[one.rows], data.sequences[one.columns]].map(s => s.group ??= groups(s));
  return from[query] === +state.part[0] && to[key] === +state.part[1];
};
// What the template inserts belongs to the text before it.
function groups(sequence) {
  let last = 0;
  return sequence.parts.map(part => part < 0 ? last : last = part);
}
function mean(query) {
  const one = kind(), total = new Float32Array(one.shape[3]);
  for (const head of state.heads) row(one, rowLayer(one), head, query).forEach((x, key) => total[key] += x / state.heads.size);
  return total.map((x, key) => sees(query, key) ? x : 0);
}

const choose = (side, token) => { Object.assign(state, {side, token}); draw(); };
const tokenClass = (sequence, n) => "token" + (sequence.parts[n] < 0 ? " inserted" : sequence.parts[n] === 1 ? " second" : "");
function strip(name, weights, chosen, label) {
  const sequence = data.sequences[name], box = make("div", {class: "strip"}, make("em", {}, label));
  sequence.pieces.forEach((piece, n) => {
    const one = make("span", {class: tokenClass(sequence, n) + (chosen === n ? " chosen" : ""), tabindex: 0, role: "button",
      title: `${piece}  ·  place ${n}` + (weights ? `  ·  ${(100 * weights[n]).toFixed(1)} %` : ""), onclick: () => choose(name, n),
      onkeydown: event => { if (event.key === "Enter") choose(name, n); }}, piece);
    if (weights) one.style.setProperty("--w", Math.min(1, Math.sqrt(weights[n])));
    box.append(one);
  });
  return box;
}
function tabs(place, options, current, pick) {
  place.replaceChildren(...options.map(([value, text]) =>
    make("button", {"aria-pressed": value === current, onclick: () => { pick(value); draw(); }}, text)));
}

function drawAttention() {
  const one = kind(), [layers, heads, rows, columns] = one.shape;
  if (state.side !== one.rows) Object.assign(state, {side: one.rows, token: Math.min(state.token, rows - 1)});
  if (data.attention.length > 1)
    tabs(at("kinds"), data.attention.map((each, n) => [n, each.name]), state.kind, n => {
      state.kind = n; state.part = "all"; state.side = kind().rows; state.token = Math.min(state.token, kind().shape[2] - 1); allHeads(); modelOf = -1;
    });
  const two = one.rows === one.columns && data.sequences[one.rows].parts.includes(1);
  if (two) tabs(at("filters"), [["all", "all"], ["00", "A → A"], ["01", "A → B"], ["10", "B → A"], ["11", "B → B"]], state.part, p => state.part = p);
  else at("filters").replaceChildren();
  at("heads").replaceChildren(
    make("button", {"aria-pressed": state.heads.size === heads, title: "all heads", onclick: () => { allHeads(); draw(); }}, "all"),
    ...Array.from({length: heads}, (_, head) => {
      const button = make("button", {"aria-pressed": state.heads.has(head), title: `head ${head + 1}; with Shift: add or remove`, onclick: event => {
        if (event.shiftKey || event.ctrlKey || event.metaKey) { state.heads.has(head) && state.heads.size > 1 ? state.heads.delete(head) : state.heads.add(head); }
        else state.heads = new Set([head]);
        draw();
      }}, String(head + 1));
      button.style.setProperty("--c", colour(head, heads));
      return button;
    }));
  const weights = mean(state.token), which = state.heads.size === heads ? "mean of all heads" : `head ${[...state.heads].map(h => h + 1).sort((a, b) => a - b).join(", ")}`;
  const label = `layer ${rowLayer(one) + 1} of ${layers}, ${which}`;
  at("strips").replaceChildren(...one.rows === one.columns ? [strip(one.rows, weights, state.token, label)]
    : [strip(one.rows, null, state.token, one.rows), strip(one.columns, weights, null, `${one.columns}: ${label}`)]);
  const views = [["lines", linesView], ["matrix", matrixView], ...one.neurons ? [["neurons", neuronsView]] : []];
  const [, view] = views.find(([name]) => name === state.view) ?? views[0];
  tabs(at("views"), views.map(([name]) => [name, name]), state.view, name => state.view = name);
  at("view").replaceChildren(view(one));
  drawModel(one);
}

const SVG = document.createRange().createContextualFragment("<svg></svg>").firstChild.namespaceURI;
function shape(tag, attributes, ...inside) {
  const one = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value);
  one.append(...inside);
  return one;
}
function linesView(one) {
  const [, heads, rows, columns] = one.shape, step = 21, wide = Math.min(720, Math.max(300, at("view").clientWidth - 24));
  const left = wide * .34, right = wide * .66, height = step * Math.max(rows, columns) + 8;
  const svg = shape("svg", {width: wide, height, role: "img", "aria-label": "lines from tokens to the tokens that they attend to"});
  const from = rows <= LINES ? Array.from({length: rows}, (_, n) => n) : [state.token];
  const layer = rowLayer(one), lines = shape("g", {}), drawn = [];
  for (const head of state.heads) for (const query of from)
    row(one, layer, head, query).forEach((x, key) => { if (x >= .03 && sees(query, key)) drawn.push([x, head, query, key]); });
  const peak = Math.max(...drawn.map(([x]) => x), .2);
  for (const [x, head, query, key] of drawn.sort((a, b) => a[0] - b[0])) {
    const faint = rows <= LINES && query !== state.token;
    const line = shape("line", {x1: left + 6, x2: right - 6, y1: query * step + 14, y2: key * step + 14, "stroke-width": faint ? 1.2 : 2.4,
      opacity: (faint ? .25 : 1) * x / peak});
    line.style.stroke = colour(head, heads);
    lines.append(line);
  }
  svg.append(lines);
  const column = (name, x, anchor, pick) => data.sequences[name].pieces.forEach((piece, n) => {
    const text = shape("text", {x, y: n * step + 18, "text-anchor": anchor,
      class: (data.sequences[name].parts[n] < 0 ? "inserted" : "") + (pick && n === state.token ? " chosen" : "")}, piece.length > 16 ? piece.slice(0, 15) + "…" : piece);
    if (pick) text.addEventListener("click", () => choose(name, n));
    svg.append(text);
  });
  column(one.rows, left, "end", true);
  column(one.columns, right, "start", false);
  return svg;
}

const ink = () => getComputedStyle(document.documentElement).getPropertyValue("--accent").trim();
function rgb(text) {
  const hex = text.replace("#", "");
  return [0, 2, 4].map(n => parseInt(hex.slice(n, n + 2), 16));
}
// Draws one matrix of attention into a canvas of at most `most` pixels a side; cells share a pixel by their largest value.
function paint(canvas, rows, columns, most, value) {
  const size = Math.min(most, Math.max(rows, columns)), scale = size / Math.max(rows, columns);
  const high = Math.max(1, Math.round(rows * scale)), wide = Math.max(1, Math.round(columns * scale));
  canvas.width = wide; canvas.height = high;
  const grid = new Float32Array(wide * high), context = canvas.getContext("2d"), image = context.createImageData(wide, high), [r, g, b] = rgb(ink());
  for (let query = 0; query < rows; query++) {
    const y = Math.min(high - 1, Math.floor(query * scale));
    value(query).forEach((x, key) => { const n = y * wide + Math.min(wide - 1, Math.floor(key * scale)); if (x > grid[n]) grid[n] = x; });
  }
  grid.forEach((x, n) => image.data.set([r, g, b, Math.round(FULL * Math.min(1, Math.sqrt(x)))], 4 * n));
  context.putImageData(image, 0, 0);
}
function matrixView(one) {
  const [, , rows, columns] = one.shape, small = Math.max(rows, columns) <= 64, cell = small ? 17 : Math.max(1, Math.min(8, Math.floor(1000 / columns)));
  const canvas = make("canvas", {role: "img", "aria-label": "attention, a row for each token"});
  paint(canvas, rows, columns, 1 << 12, query => mean(query));
  canvas.style.width = columns * cell + "px"; canvas.style.height = rows * cell + "px";
  const place = event => {
    const box = canvas.getBoundingClientRect();
    return [Math.floor((event.clientY - box.top) / box.height * rows), Math.floor((event.clientX - box.left) / box.width * columns)];
  };
  canvas.addEventListener("click", event => choose(one.rows, place(event)[0]));
  canvas.addEventListener("pointermove", event => {
    const [query, key] = place(event);
    if (query < 0 || key < 0 || query >= rows || key >= columns) return;
    tip.replaceChildren(`${data.sequences[one.rows].pieces[query]} → ${data.sequences[one.columns].pieces[key]}: ${(100 * mean(query)[key]).toFixed(1)} %`);
    tip.hidden = false;
    tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px"; tip.style.top = event.clientY + 14 + "px";
  });
  canvas.addEventListener("pointerleave", () => tip.hidden = true);
  if (!small) return make("div", {class: "plot"}, canvas);
  const side = make("div", {class: "side"}), above = make("div", {class: "top"});
  side.style.gridAutoRows = cell + "px"; side.style.lineHeight = cell + "px";
  data.sequences[one.rows].pieces.forEach((piece, n) => side.append(make("span", {class: n === state.token ? "chosen" : "", onclick: () => choose(one.rows, n)}, piece)));
  data.sequences[one.columns].pieces.forEach(piece => { const label = make("span", {}, piece); label.style.width = cell + "px"; label.style.lineHeight = cell + "px"; above.append(label); });
  return make("div", {class: "plot"}, above, side, canvas);
}
// The query of the chosen token with its scale, the key of every token, and their products by neuron, whose sum is the part of the
// score that comes from what the tokens hold (after Vig, "A Multiscale Visualization of Attention", 2019, §3).
function neuronsView(one) {
  const [, heads, rows, columns] = one.shape, {width, queries, keys, scales} = one.neurons, layer = rowLayer(one);
  const head = [...state.heads].sort((a, b) => a - b)[0], cell = Math.max(2, Math.min(8, Math.floor(420 / width)));
  const vector = (array, side, length, n) => {
    const start = ((layer * heads + head) * length + n) * width, scale = scales[side][layer * heads + head];
    return Array.from(array.subarray(start, start + width), x => x * scale);
  };
  const query = vector(queries, 0, rows, state.token), all = Array.from({length: columns}, (_, n) => vector(keys, 1, columns, n));
  const products = all.map(key => key.map((x, n) => x * query[n])), shares = row(one, layer, head, state.token);
  const peak = vectors => Math.max(1e-9, ...vectors.flat().map(Math.abs)), peaks = [peak([query]), peak(all), peak(products)];
  const style = getComputedStyle(document.documentElement), hue = name => rgb(style.getPropertyValue(name).trim()), plus = hue("--series-0"), minus = hue("--series-6");
  const bar = (values, most, label) => {
    const canvas = make("canvas", {role: "img", "aria-label": label}), context = canvas.getContext("2d");
    canvas.width = width; canvas.height = 1;
    const image = context.createImageData(width, 1);
    values.forEach((x, n) => image.data.set([...x < 0 ? minus : plus, Math.round(FULL * Math.sqrt(Math.abs(x) / most))], 4 * n));
    context.putImageData(image, 0, 0);
    canvas.style.width = width * cell + "px"; canvas.style.height = "15px";
    return make("td", {}, canvas);
  };
  const names = data.sequences[one.columns].pieces, chosen = data.sequences[one.rows].pieces[state.token];
  const table = make("table", {class: "neurons"},
    make("thead", {}, make("tr", {}, ...["", `query of “${chosen}”, head ${head + 1}`, "key", "query × key", "sum", "share"].map(text => make("th", {}, text)))),
    make("tbody", {}, ...products.map((product, n) => make("tr", {}, make("th", {}, names[n]),
      n ? make("td") : bar(query, peaks[0], "query"), bar(all[n], peaks[1], "key"), bar(product, peaks[2], "products"),
      make("td", {}, product.reduce((a, b) => a + b, 0).toFixed(2)), make("td", {}, `${(100 * shares[n]).toFixed(1)} %`)))));
  return make("div", {class: "scroll"}, table);
}
let modelOf = -1;
function drawModel(one) {
  const [layers, heads, rows, columns] = one.shape;
  if (modelOf !== state.kind) {
    modelOf = state.kind;
    const table = make("table", {}, make("thead", {}, make("tr", {}, make("th"), ...Array.from({length: heads}, (_, h) => make("th", {}, String(h + 1))))));
    const body = make("tbody");
    for (let layer = layers - 1; layer >= 0; layer--) {
      const line = make("tr", {}, make("th", {}, String(layer + 1)));
      for (let head = 0; head < heads; head++) {
        const pick = () => { state.layer = layer + 1; state.heads = new Set([head]); draw(); };
        const canvas = make("canvas", {tabindex: 0, role: "button", title: `layer ${layer + 1}, head ${head + 1}`, "aria-label": `layer ${layer + 1}, head ${head + 1}`,
          onclick: pick, onkeydown: event => { if (event.key === "Enter") pick(); }});
        paint(canvas, rows, columns, 112, query => row(one, layer, head, query));
        const side = Math.max(34, Math.min(96, Math.floor(980 / heads))), scale = side / Math.max(rows, columns);
        canvas.style.width = Math.max(8, columns * scale) + "px"; canvas.style.height = Math.max(8, rows * scale) + "px";
        Object.assign(canvas.dataset, {layer, head});
        line.append(make("td", {}, canvas));
      }
      body.append(line);
    }
    table.append(body);
    at("model").replaceChildren(table);
  }
  for (const canvas of at("model").querySelectorAll("canvas"))
    canvas.classList.toggle("chosen", +canvas.dataset.layer === rowLayer(one) && state.heads.has(+canvas.dataset.head) && state.heads.size < heads);
}

let lensCells = null;
function drawLens() {
  const lens = data.lens, places = lens.ids[0].length, pieces = data.sequences[lens.rows].pieces.slice(0, places); // without items
  if (!lensCells) {
    lensCells = [];
    const heads = pieces.map((piece, n) => make("th", {title: `place ${n}`, onclick: () => choose(lens.rows, n)}, piece));
    const table = make("table", {}, make("thead", {}, make("tr", {}, make("th", {}, "layer"), ...heads))), body = make("tbody");
    for (let layer = lens.ids.length - 1; layer >= 0; layer--) {
      const cells = pieces.map((_, n) => make("td", {w: lens.shares[layer][n][0].toFixed(3),
        class: lens.actual[layer][n] !== null && Math.abs(lens.actual[layer][n] - lens.shares[layer][n][0]) < 1e-9 ? "right" : "",
        title: `${(100 * lens.shares[layer][n][0]).toFixed(1)} %`, onclick: () => { state.layer = layer; choose(lens.rows, n); }}, word(lens.ids[layer][n][0])));
      const line = make("tr", {}, make("th", {}, layer ? String(layer) : "input"), ...cells);
      lensCells.push({layer, line, cells});
      body.append(line);
    }
    table.append(body);
    lensCells.heads = heads;
    at("lens-table").replaceChildren(table);
  }
  const top = lens.ids.length - 1, layer = Math.min(state.layer, top), here = state.side === lens.rows && state.token < places ? state.token : -1;
  for (const each of lensCells) {
    each.line.classList.toggle("current", each.layer === layer);
    each.cells.forEach((cell, n) => cell.classList.toggle("chosen", n === here && each.layer === layer));
  }
  lensCells.heads.forEach((head, n) => head.classList.toggle("chosen", n === here));
  if (here < 0) { at("lens-detail").replaceChildren(); return; }
  const best = make("div", {}, make("p", {}, `After “${pieces[here]}” (place ${here}), layer ${layer || "input"}`));
  if (lens.predicts === "own") best.firstChild.textContent = `At “${pieces[here]}” (place ${here}), layer ${layer || "input"}`;
  lens.ids[layer][here].forEach((id, n) => best.append(answer(word(id), lens.shares[layer][here][n])));
  const climb = make("div", {}, make("p", {}, `Probability of the top layer's best token, “${word(lens.ids[top][here][0])}”, by layer`));
  for (let n = top; n >= 0; n--) climb.append(answer(n ? `layer ${n}` : "input", lens.final[n][here]));
  at("lens-detail").replaceChildren(best, climb);
}
function answer(name, share) {
  return make("div", {class: "answer"}, make("span", {title: name}, name), make("i", {w: share.toFixed(4)}), make("b", {}, `${(100 * share).toFixed(1)} %`));
}

function drawAttributions() {
  const sequence = data.sequences[first];
  at("attribution-strips").replaceChildren(...data.attributions.map(one => {
    const where = data.lens?.predicts === "next" ? "after" : "at", peak = Math.max(...one.shares.map(Math.abs), 1e-9);
    const box = make("div", {class: "strip"}, make("em", {}, `“${one.what}”${one.place === null ? "" : ` ${where} “${sequence.pieces[one.place]}” (place ${one.place})`}: log probability ${one.score.toFixed(2)}, ${one.base.toFixed(2)} without the text`));
    sequence.pieces.slice(0, one.shares.length).forEach((piece, n) => box.append(make("span", {class: `token ${sequence.parts[n] < 0 ? "inserted" : ""} ${one.shares[n] < 0 ? "against" : "for"}${one.place === n ? " chosen" : ""}`,
      w: (Math.abs(one.shares[n]) / peak).toFixed(3), title: `${piece}: ${one.shares[n] > 0 ? "+" : ""}${one.shares[n].toFixed(3)}`}, piece)));
    return box;
  }));
}

function drawNear() {
  const names = data.near.map(one => one.rows), near = data.near.find(one => one.rows === state.side) ?? data.near[0], sequence = data.sequences[near.rows];
  const here = Math.min(state.token, near.tokens[0].length - 1); // items of a picture have no neighbours
  if (names.length > 1) tabs(at("sides"), names.map(name => [name, name]), near.rows, name => Object.assign(state, {side: name, token: 0, ...sideKind(name)}));
  at("near-strip").replaceChildren(strip(near.rows, null, here, "the chosen token"));
  const head = ["layer", "nearest tokens of this text", ...near.words ? ["nearest words of the vocabulary"] : []];
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...head.map(text => make("th", {}, text))))), body = make("tbody");
  const list = (names, cosines) => make("td", {}, ...names.map((name, n) => make("span", {class: "near-word"}, name, make("em", {}, cosines[n].toFixed(2)))));
  for (let layer = near.tokens.length - 1; layer >= 0; layer--) {
    const line = make("tr", {class: layer === Math.min(state.layer, near.tokens.length - 1) ? "current" : "", onclick: () => { state.layer = layer; draw(); }},
      make("td", {}, layer ? String(layer) : "input"), list(near.tokens[layer][here].map(n => sequence.pieces[n]), near.cosines[layer][here]));
    if (near.words) line.append(list(near.words[layer][here].map(word), near.word_cosines[layer][here]));
    body.append(line);
  }
  table.append(body);
  at("near-table").replaceChildren(table);
}
// The kind of attention that shows the chosen side, if the present one does not.
function sideKind(name) {
  const found = data.attention.findIndex(one => one.rows === name);
  if (found < 0 || kind().rows === name) return {};
  queueMicrotask(() => { allHeads(); draw(); });
  return {kind: found};
}

function draw() {
  at("layer").value = state.layer;
  at("layer-name").textContent = state.layer ? `${state.layer} of ${count}` : "input";
  if (data.attention.length) drawAttention();
  if (data.lens) drawLens();
  drawNear();
  at("token-name").textContent = data.sequences[state.side].pieces[state.token];
}
at("layer").addEventListener("input", event => { state.layer = +event.target.value; draw(); });
addEventListener("keydown", event => {
  if (event.target.matches("input, button, [role=button]") || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
  const last = data.sequences[state.side].pieces.length - 1;
  choose(state.side, Math.min(last, Math.max(0, state.token + (event.key === "ArrowRight" ? 1 : -1))));
});
if (data.attention.length) {
  const shown = data.attention.findIndex(one => one.rows === state.side);
  state.kind = shown < 0 ? 0 : shown;
  if (kind().shape[2] > 2 * LINES) state.view = "matrix";
  allHeads();
}
if (data.attributions.length) drawAttributions();
draw();
