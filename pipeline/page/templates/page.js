"use strict";
const root = document.documentElement;
const specs = JSON.parse(document.getElementById("specs").textContent);

// Light and dark: as the system has it, until the button is used.
const dark = matchMedia("(prefers-color-scheme: dark)");
function stored() { try { return localStorage.getItem("theme"); } catch { return null; } }
function showTheme() {
  root.dataset.theme = stored() || (dark.matches ? "dark" : "light");
  document.querySelectorAll(".plot[data-drawn]").forEach(draw);
}
dark.addEventListener("change", showTheme);
document.getElementById("theme").addEventListener("click", () => {
  const next = root.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("theme", next); } catch { /* private window */ }
  root.dataset.theme = next;
  document.querySelectorAll(".plot[data-drawn]").forEach(draw);
});

// Texts that render.py compressed: packed().
async function unpack(script) {
  const text = atob(script.textContent), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

// Charts are drawn when they come into view.
let library;
function loadVega() {  // window.vega is the library's own name
  if (!library) {
    library = unpack(document.getElementById("vega")).then(([text]) => new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = URL.createObjectURL(new Blob([text], {type: "text/javascript"}));
      script.onload = () => resolve(window.vegaEmbed);
      script.onerror = () => reject(new Error("Vega cannot be read"));
      document.head.append(script);
    }));
  }
  return library;
}
function rowsOf(data) {
  const names = Object.keys(data), rows = [];
  for (let i = 0; i < (names.length ? data[names[0]].length : 0); i++) {
    rows.push(Object.fromEntries(names.map(name => [name, data[name][i]])));
  }
  return rows;
}
const dataOf = figure => JSON.parse(figure.querySelector(":scope > script[type='application/json']").textContent);
function config() {
  const css = getComputedStyle(root), value = name => css.getPropertyValue(name).trim();
  const [ink, soft, line] = ["--ink", "--soft", "--line"].map(value);
  const range = root.dataset.theme === "dark"
    ? ["#8ab4f8", "#f0b962", "#6fd69b", "#ff9d94", "#c7a6f7", "#7fd6e0", "#d3c27a", "#e59ac5"]
    : ["#1f5fbf", "#c2660a", "#14713d", "#b3261e", "#6f42c1", "#00707d", "#75620a", "#a02c73"];
  return {
    background: "transparent", font: getComputedStyle(document.body).fontFamily,
    view: {stroke: null}, mark: {color: range[0]}, range: {category: range},
    axis: {labelColor: soft, titleColor: soft, gridColor: line, domainColor: line, tickColor: line,
      labelFontSize: 12, titleFontSize: 12, titleFontWeight: 400},
    legend: {labelColor: ink, titleColor: soft, orient: "top", labelFontSize: 12, titleFontSize: 12},
    title: {color: ink}, text: {color: ink}, header: {labelColor: ink, titleColor: soft},
    rule: {color: soft},
  };
}
async function draw(plot) {
  const figure = plot.closest("figure");
  const spec = {$schema: "https://vega.github.io/schema/vega-lite/v6.json",
    autosize: {type: "fit-x", contains: "padding"}, ...specs[figure.dataset.spec],
    data: {values: rowsOf(dataOf(figure))}, config: config()};
  if (spec.height?.step) {  // Vega-Lite cannot fit the width beside a height by steps
    spec.height = spec.height.step * new Set(spec.data.values.map(row => row.y)).size;
  }
  plot.dataset.drawn = root.dataset.theme;
  try {
    const embed = await loadVega();
    const {view} = await embed(plot, spec, {renderer: "svg", actions: false, tooltip: {theme: root.dataset.theme}});
    plot.style.minHeight = "0";
    plot.view = view;
    const slider = figure.parentNode.closest("figure.thresholds");
    if (slider) moveThreshold(slider, plot);
  } catch (error) {
    plot.textContent = `This chart cannot be drawn: ${error.message}`;
    console.error(error);
  }
}
const inView = new IntersectionObserver(entries => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    inView.unobserve(entry.target);
    if (!entry.target.dataset.drawn) draw(entry.target);  // else it was printed
  }
}, {rootMargin: "300px"});
function watch(parent) {
  parent.querySelectorAll(".plot:not([data-drawn])").forEach(plot => inView.observe(plot));
  parent.querySelectorAll("details.numbers").forEach(details => {
    details.addEventListener("toggle", () => listNumbers(details), {once: true});
  });
}
function listNumbers(details) {
  const data = dataOf(details.closest("figure")), names = Object.keys(data);
  const frame = Object.assign(document.createElement("div"), {className: "frame", tabIndex: 0});
  const table = document.createElement("table");
  const head = table.createTHead().insertRow();
  names.forEach(name => {
    head.append(Object.assign(document.createElement("th"), {textContent: name, scope: "col"}));
  });
  const body = table.createTBody();
  rowsOf(data).forEach(row => {
    const line = body.insertRow();
    names.forEach(name => { line.insertCell().textContent = row[name] ?? "undefined"; });
  });
  frame.append(table);
  details.append(frame);
}

// Tables: sort by a heading, filter, open the details of a row. The browser lays out all rows of
// the document, so it holds those that are shown: of a long table the first ones.
const tables = new WeakMap();  // .table -> its rows in their order
const texts = new WeakMap();  // row -> its text in lower case
const leftOut = new WeakSet();  // rows that a filter leaves out
const opened = new WeakMap();  // row -> the row of its details
function rowsIn(box) {
  if (!tables.has(box)) {
    const rows = Array.from(box.querySelector("table").tBodies[0].rows);
    tables.set(box, rows.filter(row => !row.classList.contains("details")));
  }
  return tables.get(box);
}
function showRows(box) {
  const more = box.querySelector(":scope > .more"), body = box.querySelector("table").tBodies[0];
  const shown = rowsIn(box).filter(row => !leftOut.has(row)).slice(0, more?.dataset.shown);
  shown.forEach(row => { row.hidden = false; });
  const lines = new Set(shown.flatMap(row => opened.has(row) ? [row, opened.get(row)] : [row]));
  Array.from(body.rows).forEach(line => { if (!lines.has(line)) line.remove(); });
  let next = body.firstElementChild;
  for (const line of lines) {  // rows in place stay: to insert one again is to lay it out again
    if (line === next) next = next.nextElementSibling; else body.insertBefore(line, next);
  }
  body.querySelectorAll(".plot[data-drawn]").forEach(plot => {  // of the theme before
    if (plot.dataset.drawn !== root.dataset.theme) draw(plot);
  });
}
const compareTexts = new Intl.Collator(undefined, {numeric: true}).compare;
function sortBy(box, head) {
  const up = head.getAttribute("aria-sort") !== "ascending";
  const index = Array.from(head.parentNode.children).indexOf(head);
  head.parentNode.querySelectorAll("[aria-sort]").forEach(each => each.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const isNumber = head.classList.contains("number");
  const keyed = rowsIn(box).map(row => {
    const cell = row.children[index];
    return {row, key: isNumber ? parseFloat(cell.dataset.v) : cell.textContent};
  });
  keyed.sort((a, b) => {
    if (a.key !== a.key || b.key !== b.key) return (a.key !== a.key) - (b.key !== b.key);  // NaN
    const order = isNumber ? a.key - b.key : compareTexts(a.key, b.key);
    return up ? order : -order;
  });
  tables.set(box, keyed.map(each => each.row));
  showRows(box);
}
function filterRows(box) {
  const wanted = box.querySelector(".filter").value.toLowerCase();
  let found = 0;
  for (const row of rowsIn(box)) {
    if (!texts.has(row)) texts.set(row, Array.from(row.children, cell => cell.textContent).join("\n").toLowerCase());
    const hit = texts.get(row).includes(wanted);
    hit ? leftOut.delete(row) : leftOut.add(row);
    found += hit;
  }
  const output = box.querySelector("output");
  output.value = `${found.toLocaleString("en")} ${output.value.replace(/^\S+ /, "")}`;
  showRows(box);
}
// The details of the rows of a table are packed behind it, in parts.
const unpacked = new WeakMap();
async function toggleDetails(button) {
  const row = button.closest("tr"), line = opened.get(row);
  button.setAttribute("aria-expanded", line ? "false" : "true");
  if (line) { line.remove(); opened.delete(row); return; }
  const box = button.closest(".table"), [part, place] = button.dataset.place.split(" ");
  const script = box.querySelectorAll(":scope > .packed")[part];
  if (!unpacked.has(script)) unpacked.set(script, unpack(script));
  const markup = (await unpacked.get(script))[place];
  if (opened.has(row) || button.getAttribute("aria-expanded") === "false") return;
  const extra = document.createElement("tr");
  extra.className = "details";
  const cell = extra.insertCell();
  cell.colSpan = row.cells.length;
  cell.append(Object.assign(document.createElement("div"), {innerHTML: markup}));
  opened.set(row, extra);
  row.after(extra);
  watch(extra);
}
document.addEventListener("click", event => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.classList.contains("sort")) sortBy(button.closest(".table"), button.closest("th"));
  if (button.classList.contains("open")) toggleDetails(button);
  if (button.classList.contains("more")) {
    const box = button.closest(".table");
    button.remove();
    showRows(box);
  }
});
// Thresholds: rates, counts and the marks in the charts follow the slider.
const countText = new Intl.NumberFormat("en", {maximumSignificantDigits: 10});
function moveThreshold(figure, ...plots) {
  const threshold = Number(figure.querySelector(".threshold").value);
  for (const plot of plots) {
    if (plot.view) plot.view.signal("threshold", threshold).runAsync();
  }
}
function slide(figure) {
  const all = figure.counts ??= dataOf(figure);  // read once
  const input = figure.querySelector("input"), i = Number(input.value);
  const [tp, fp] = [all.tp[i], all.fp[i]], [fn, tn] = [all.p - tp, all.n - fp];
  const rates = [[tp, tp + fp], [tp, tp + fn], [tp + tn, tp + fp + fn + tn], [fp, fp + tn],
    [2 * tp, 2 * tp + fp + fn]];
  figure.querySelectorAll(".rate").forEach((each, k) => {
    const [part, whole] = rates[k];
    each.textContent = whole ? (part / whole).toFixed(4) : "undefined";
  });
  figure.querySelectorAll(".count").forEach((each, k) => {
    each.textContent = countText.format([tp, fn, fp, tn][k]);
  });
  figure.querySelector(".threshold").value = String(all.t[i]);
  input.setAttribute("aria-valuetext", String(all.t[i]));
  moveThreshold(figure, ...figure.querySelectorAll(".plot"));
}
document.addEventListener("input", event => {
  if (event.target.type === "range") slide(event.target.closest(".thresholds"));
  if (event.target.classList.contains("filter")) filterRows(event.target.closest(".table"));
});
addEventListener("beforeprint", () => {
  document.querySelectorAll(".plot:not([data-drawn])").forEach(plot => {
    if (plot.checkVisibility()) draw(plot);
  });
});

showTheme();
watch(document);
