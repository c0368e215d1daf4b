"use strict";
// What the pointer is on says its figures: a row of intervals, a cell, or the nearest point of a line.
const tip = document.getElementById("tip");
const places = new WeakMap();
function pointsOf(svg) {
  if (!places.has(svg)) places.set(svg, [...svg.querySelectorAll("g[data-tips]")].flatMap(line => {
    const tips = line.dataset.tips.split("|");
    return line.querySelector(".run").getAttribute("d").slice(1).split("L").map((place, at) => {
      const [x, y] = place.split(" ").map(Number);
      return { x, y, text: `${line.dataset.stack}, ${tips[at]}` };
    });
  }));
  return places.get(svg);
}
function nearest(svg, event) {
  const box = svg.getBoundingClientRect(), zoom = svg.viewBox.baseVal.width / box.width;
  const x = (event.clientX - box.left) * zoom, y = (event.clientY - box.top) * zoom;
  const far = point => Math.hypot(point.x - x, point.y - y);
  const found = pointsOf(svg).reduce((best, point) => !best || far(point) < far(best) ? point : best, null);
  return found && far(found) < 24 ? found.text : "";
}
function textAt(event) {
  const marked = event.target.closest?.("[data-tip]"), svg = event.target.closest?.("svg.figure");
  return marked?.dataset.tip || (svg ? nearest(svg, event) : "");
}
addEventListener("pointermove", event => {
  const text = textAt(event);
  tip.hidden = !text;
  tip.textContent = text;
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
});
addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

// A stack of the legend that is pressed stands out in all pictures.
const buttons = [...document.querySelectorAll(".legend button")];
for (const button of buttons) button.addEventListener("click", () => {
  button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") !== "true");
  const names = new Set(buttons.filter(each => each.getAttribute("aria-pressed") === "true").map(each => each.dataset.stack));
  document.body.classList.toggle("chosen", names.size > 0);
  for (const part of document.querySelectorAll("[data-stack]")) part.classList.toggle("on", names.has(part.dataset.stack.split(", ")[0]));
});

for (const heading of document.querySelectorAll("thead th")) {
  const button = document.createElement("button"), sentence = heading.querySelector("small");
  button.type = "button";
  button.append(...[...heading.childNodes].filter(node => node !== sentence));
  heading.prepend(button);
  button.addEventListener("click", () => {
    const table = heading.closest("table"), rows = [...table.tBodies[0].rows], column = heading.cellIndex;
    const down = heading.getAttribute("aria-sort") === "ascending";
    for (const other of table.querySelectorAll("thead th")) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const figure = row => row.cells[column].dataset.sort, text = row => row.cells[column].textContent;
    // What was not measured comes after all that was.
    const order = rows.some(figure)
      ? (a, b) => (figure(a) ?? Infinity) - (figure(b) ?? Infinity) || 0
      : (a, b) => text(a).localeCompare(text(b), undefined, { numeric: true });
    rows.sort(order);
    table.tBodies[0].append(...(down ? rows.reverse() : rows));
  });
}

// A word chooses the rows whose labels have it; if there are none in a table, the columns whose headings have it.
const filter = document.getElementById("filter"), tables = [...document.querySelectorAll("section.table")];
const label = row => [...row.querySelectorAll("th")].map(cell => cell.textContent).join(" ").toLowerCase();
function show() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0, all = 0;
  for (const part of tables) {
    const rows = [...part.querySelectorAll("tbody tr")], headings = [...part.querySelectorAll("thead th")];
    const labels = rows[0]?.querySelectorAll("th").length ?? 0;
    const names = headings.map(heading => (heading.querySelector("button") ?? heading).textContent.toLowerCase());
    const ofRows = words.filter(word => rows.some(row => label(row).includes(word)));
    const others = words.filter(word => !ofRows.includes(word));
    const column = names.map((name, index) => index < labels || others.every(word => name.includes(word)));
    const some = others.length === 0 || column.lastIndexOf(true) >= labels;
    for (const row of rows) row.hidden = !some || !ofRows.every(word => label(row).includes(word));
    for (const row of part.querySelectorAll("tr"))
      [...row.cells].forEach((cell, index) => { cell.hidden = some && !column[index]; });
    const left = rows.filter(row => !row.hidden).length;
    part.hidden = words.length > 0 && left === 0;
    shown += left;
    all += rows.length;
  }
  document.getElementById("shown").textContent = words.length ? `${shown} of ${all} rows` : "";
}
filter.addEventListener("input", show);
for (const part of document.querySelectorAll(".search")) part.hidden = tables.length === 0;
