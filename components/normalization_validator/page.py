"""The fixed parts of report.html: its frame, its look, and what sorts and filters the table."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --page: #f6f7f9; --card: #fff; --ink: #1c2230; --soft: #626b7d;
  --line: #e1e5ec; --bar: #3b6fd4; --bar2: #e2a23b; --bad: #b3261e; --bad-soft: #fdecea;
  --good: #14713d; --good-soft: #e3f4ea; --stripe: #fafbfc; }
@media (prefers-color-scheme: dark) { :root { --page: #12151b; --card: #1a1f28; --ink: #e4e8f0;
  --soft: #98a2b5; --line: #2c3340; --bar: #6f9bf0; --bar2: #e0ac57; --bad: #ff8f85;
  --bad-soft: #43211f; --good: #6fd69b; --good-soft: #17382a; --stripe: #1d232d; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 22px 16px 48px; background: var(--page); color: var(--ink);
  font: 14px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
header { display: flex; align-items: center; gap: 14px; flex-wrap: wrap; }
h1 { font-size: 22px; font-weight: 650; margin: 0; letter-spacing: -0.01em; }
.verdict { font-size: 12px; font-weight: 700; padding: 3px 10px;
  border-radius: 99px; }
.verdict.good { color: var(--good); background: var(--good-soft); }
.verdict.bad { color: var(--bad); background: var(--bad-soft); }
dl { display: flex; gap: 12px; flex-wrap: wrap; margin: 18px 0; }
dl div { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 10px 16px; min-width: 116px; }
dt { color: var(--soft); font-size: 12px; }
dd { margin: 0; font-size: 20px; font-weight: 600; font-variant-numeric: tabular-nums; }
.lead { color: var(--soft); }
body > details { background: var(--card); border: 1px solid var(--line);
  border-left: 4px solid var(--bad); border-radius: 8px; padding: 10px 16px; margin: 0 0 18px; }
summary { cursor: pointer; font-weight: 600; }
body > details ul { margin: 8px 0 2px; padding-left: 18px; overflow-wrap: anywhere; }
.tools { display: flex; gap: 18px; align-items: center; flex-wrap: wrap; margin: 0 0 10px;
  color: var(--soft); font-size: 13px; }
.tools input[type=search] { font: inherit; color: inherit; background: var(--card); width: 220px;
  border: 1px solid var(--line); border-radius: 8px; padding: 6px 10px; }
.key::before { content: ""; display: inline-block; width: 10px; height: 10px; border-radius: 2px;
  margin-right: 6px; background: var(--bar); }
.key.imputed::before { background: var(--bar2); }
.key.raw::before { background: var(--soft); }
.frame { overflow-x: auto; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 5px 4px; white-space: nowrap; font-weight: 400;
  font-size: 12.5px; vertical-align: top; }
/* The lines of a row's cells, one for each split, are as high as a histogram. */
td > div { height: 40px; line-height: 26px; border-radius: 4px; padding: 0 2px; }
.text, .plot { text-align: left; }
tbody th.text { white-space: normal; overflow-wrap: anywhere; min-width: 118px; max-width: 190px; }
.kind { color: var(--soft); font-weight: 400; font-size: 12px; }
details.folded { border: 0; padding: 0; margin: 2px 0 0; background: none; font-weight: 400;
  font-size: 12px; }
details.folded summary { font-weight: 400; color: var(--soft); }
details.folded ul { padding-left: 14px; margin: 2px 0 0; }
details.folded li.bad { color: var(--bad); font-weight: 700; }
thead th { color: var(--soft); font-size: 12px; font-weight: 600; cursor: pointer;
  user-select: none; border-bottom: 1px solid var(--line); padding: 9px 4px; }
thead th:hover, thead th[aria-sort] { color: var(--ink); }
thead th[aria-sort=ascending]::after { content: " ↑"; }
thead th[aria-sort=descending]::after { content: " ↓"; }
tbody tr + tr > * { border-top: 1px solid var(--line); }
tbody tr:hover > * { background: var(--stripe); }
tbody th { font-weight: 600; }
tbody tr.violated > th { box-shadow: inset 3px 0 var(--bad); }
tbody td > div.bad { background: var(--bad-soft); color: var(--bad); font-weight: 700; }
.tag { font-size: 11px; font-weight: 500; color: var(--soft); border: 1px solid var(--line);
  border-radius: 99px; padding: 0 7px; margin-left: 4px; }
svg { display: block; }
svg .raw { fill: var(--soft); } svg .observed { fill: var(--bar); }
svg .imputed { fill: var(--bar2); }
svg .axis { stroke: var(--line); } svg text { fill: var(--soft); font-size: 9px; }
svg text.end { text-anchor: end; } svg text.middle { text-anchor: middle; }
"""

SCRIPT = """
const table = document.querySelector("table"), body = table.tBodies[0];
const rows = Array.from(body.rows);
const heads = Array.from(table.tHead.rows[0].cells);
function sortBy(head, index) {
  const up = head.getAttribute("aria-sort") !== "ascending";
  heads.forEach(h => h.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const text = head.classList.contains("text");
  const key = r => r.cells[index].dataset.v;
  rows.sort((a, b) => {
    const x = key(a), y = key(b);
    if (x === y) return a.dataset.order - b.dataset.order;
    if (x === "") return 1;
    if (y === "") return -1;
    const n = text ? x.localeCompare(y, undefined, {numeric: true}) : toNumber(x) - toNumber(y);
    return up ? n : -n;
  });
  body.append(...rows);
}
const toNumber = v => v === "inf" ? Infinity : v === "-inf" ? -Infinity : Number(v);
heads.forEach((head, i) => {
  head.addEventListener("click", () => sortBy(head, i));
  head.addEventListener("keydown", e => { if (e.key === "Enter") sortBy(head, i); });
});
const search = document.getElementById("search"), only = document.getElementById("only");
function filter() {
  const wanted = search.value.toLowerCase();
  rows.forEach(r => {
    const hit = r.textContent.toLowerCase().includes(wanted);
    r.hidden = !hit || (only.checked && !r.classList.contains("violated"));
  });
}
search.addEventListener("input", filter);
only.addEventListener("change", filter);
"""

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>Normalisation report</title>
<style>{style}</style>
</head>
<body>
<header><h1>Normalisation report</h1><span class="verdict {verdict_class}">{verdict}</span></header>
<dl>{tiles}</dl>
{violations}
<div class="tools">
<input type="search" id="search" placeholder="Filter columns" aria-label="Filter columns"/>
<label><input type="checkbox" id="only"/> violated only</label>
<span class="key raw">raw</span><span class="key">normalised</span>
<span class="key imputed">imputed</span>
</div>
<div class="frame">
<table>
<thead><tr>{head}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>
<script>{script}</script>
</body>
</html>
"""
