// Hovering over a chart shows the value of every curve under the pointer. The page is complete without it.
const tip = document.getElementById("tip");
const plain = v => {
  const a = Math.abs(v);
  for (const [limit, scale, unit] of [[1e15, 1e15, " P"], [1e12, 1e12, " T"], [1e9, 1e9, " G"], [1e6, 1e6, " M"], [1e4, 1e3, " k"]])
    if (a >= limit) return +(v / scale).toPrecision(4) + unit;
  return String(+v.toPrecision(4));
};
const duration = s => s < 60 ? Math.round(s) + " s" : s < 3600 ? Math.floor(s / 60) + " m " + Math.round(s % 60) + " s"
  : Math.floor(s / 3600) + " h " + Math.round(s % 3600 / 60) + " m";
for (const svg of document.querySelectorAll("svg.chart")) {
  const [x0, x1, px0, px1] = svg.dataset.x.split(",").map(Number), [y0, y1, py0, py1] = svg.dataset.y.split(",").map(Number);
  const form = {duration, power: v => plain(10 ** v)}[svg.dataset.format] || plain, cursor = svg.querySelector(".cursor");
  const curves = [...svg.querySelectorAll("polyline:not(.faint)")].map(line => ({
    name: line.dataset.name, colour: line.style.getPropertyValue("--c"),
    points: line.getAttribute("points").split(" ").map(p => p.split(",").map(Number)),
  }));
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect(), at = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    if (at < px0 || at > px1) return leave();
    const rows = curves.map(c => {
      const p = c.points.reduce((best, q) => Math.abs(q[0] - at) < Math.abs(best[0] - at) ? q : best);
      return {...c, y: y0 + (p[1] - py0) / (py1 - py0) * (y1 - y0)};
    });
    tip.replaceChildren(form(x0 + (at - px0) / (px1 - px0) * (x1 - x0)));
    for (const row of rows) {
      const line = document.createElement("div"), dot = document.createElement("i"), value = document.createElement("b");
      dot.style.setProperty("--c", row.colour);
      value.textContent = " " + plain(row.y);
      line.append(dot, row.name, value);
      tip.append(line);
    }
    tip.hidden = false;
    tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
    tip.style.top = Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8) + "px";
    cursor.setAttribute("x1", at); cursor.setAttribute("x2", at); cursor.setAttribute("visibility", "visible");
  });
  const leave = () => { tip.hidden = true; cursor.setAttribute("visibility", "hidden"); };
  svg.addEventListener("pointerleave", leave);
}
