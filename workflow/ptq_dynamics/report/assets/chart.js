// Panels that tell values to pointer and keys, and zoom.

const HELP =
  "Point at a curve, or step: left and right along it, up and down to others; + and − zoom, 0 shows all; drag to zoom into a part.";
const NEAR = 40; // units of a drawing, from where a point is told

/** The lines of a figure's table: one for every panel, curve, segment and axis. */
function lines(figure) {
  const table = byName(figure.columns);
  const found = new Map();
  const extra = figure.columns.map(({ name }) => name).filter((name) => !PLAIN.has(name));
  table.x.forEach((x, row) => {
    const [panel, curve] = [table.panel[row], table.curve?.[row] ?? table.point[row]];
    const [segment, axis] = [table.segment?.[row] ?? "", table.axis?.[row] ?? "left"];
    const key = JSON.stringify([panel, curve, segment, axis]);
    if (!found.has(key)) {
      const look = figure.looks[curve] ?? { color: "#d55e00", dash: "-", mark: POINTS[curve] ?? "D" };
      const isShaded = curve === "grid";
      found.set(key, { panel, curve, segment, axis, look, isShaded, isLine: Boolean(table.axis), points: [] });
    }
    const more = extra.map((name) => `${name} ${typeof table[name][row] === "number" ? read(table[name][row]) : table[name][row]}`);
    const [low, high] = [table.low?.[row] ?? null, table.high?.[row] ?? null];
    found.get(key).points.push({ x, y: table.y[row], low, high, more, shade: table.increase?.[row] });
  });
  return [...found.values()];
}

// Marks of the points of a landscape, as its picture has them.
const POINTS = { final: "o", previous: "s", quantized: "X" };
const PLAIN = new Set(["panel", "curve", "point", "segment", "axis", "x", "y", "low", "high"]);

/** Panels of lines with one legend, whose entries hide and show curves. */
function charts(all, name) {
  const hidden = new Set();
  const panels = [...new Set(all.map((line) => line.panel))];
  const made = panels.map((panel) => {
    const own = all.filter((line) => line.panel === panel);
    return chart(own, panel.length < 4 ? `(${panel})` : panel, name, hidden);
  });
  const curves = new Map(all.filter((line) => !line.isShaded).map((line) => [line.curve, line]));
  const entries = [...curves].map(([curve, line]) => {
    const button = make("button", { type: "button", "aria-pressed": "true" }, sample(line), ` ${curve}`);
    button.addEventListener("click", () => {
      hidden.has(curve) ? hidden.delete(curve) : hidden.add(curve);
      button.setAttribute("aria-pressed", String(!hidden.has(curve)));
      made.forEach((each) => each.redraw());
    });
    return button;
  });
  const legend = make("p", { class: "legend", role: "group", "aria-label": "Curves to show" }, ...entries);
  return make("div", {}, make("p", { class: "hint" }, HELP), legend, make("div", { class: "panels" }, ...made.map((each) => each.element)));
}

function sample({ isLine, look: { color, dash, mark } }) {
  const line = isLine && draw("path", { d: "M0 6H26", stroke: color, "stroke-width": 2, "stroke-dasharray": DASHES[dash] });
  const shape = draw("path", { d: MARKS[mark] ?? MARKS.o, fill: color, transform: "translate(13 6)" });
  return draw("svg", { viewBox: "0 0 26 12", width: 26, height: 12, class: "paper", "aria-hidden": "true" }, line || null, shape);
}

/** One panel: its element, and what draws it anew. */
function chart(all, panel, name, hidden) {
  const left = all.filter((line) => line.axis !== "right");
  const whole = (isLog) => ({
    x: range(left.flatMap((line) => line.points.map((point) => point.x)), isLog.x),
    y: range(left.flatMap((line) => line.points.flatMap((point) => [point.y, point.low ?? point.y, point.high ?? point.y])), isLog.y),
    right: [0, range(all.filter((line) => line.axis === "right").flatMap((line) => line.points.map((point) => point.y)), false)[1]],
    logX: isLog.x,
    logY: isLog.y,
  });
  const isLog = { x: false, y: false };
  let [view, drawn, told, from] = [whole(isLog), null, null, null];
  const tip = make("p", { class: "tip", hidden: "" });
  const ring = draw("circle", { r: 5, class: "ring", visibility: "hidden" });
  const brush = draw("rect", { class: "brush", visibility: "hidden" });
  const paper = make("div", { class: "paper", tabindex: "0", role: "group", "aria-roledescription": "chart", "aria-label": `${name} ${panel}. ${HELP}` });

  function redraw() {
    drawn = plot(all.filter((line) => !hidden.has(line.curve)), view, `${name} ${panel}`);
    drawn.svg.append(brush, ring);
    paper.replaceChildren(drawn.svg, tip);
    forget();
  }
  function forget() {
    told = null;
    tip.hidden = true;
    ring.setAttribute("visibility", "hidden");
  }
  function tell(spot, aloud) {
    told = spot;
    const { line, point, at } = spot;
    const what = [line.curve, line.segment === line.curve ? "" : line.segment, line.axis === "right" ? "learning rate" : ""];
    const band = point.low === null ? [] : [`from ${read(point.low)} to ${read(point.high)}`];
    const text = [`${what.filter(Boolean).join(", ")}: x ${read(point.x)}, y ${read(point.y)}`, ...band, ...point.more].join(", ");
    tip.textContent = text;
    tip.hidden = false;
    tip.style.left = `${(100 * Math.min(at[0], SIZE.width * 0.55)) / SIZE.width}%`;
    tip.style.top = `${(100 * at[1]) / SIZE.height + 5}%`;
    ring.setAttribute("cx", at[0]);
    ring.setAttribute("cy", at[1]);
    ring.setAttribute("visibility", "visible");
    if (aloud) say(text);
  }
  function place(event) {
    const box = drawn.svg.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * SIZE.width, ((event.clientY - box.top) / box.height) * SIZE.height];
  }
  function zoomTo(x, y) {
    view = { ...view, x, y };
    redraw();
  }
  function zoom(factor) {
    const box = drawn.box;
    const middle = told?.at ?? [box.x + box.width / 2, box.y + box.height / 2];
    const part = (centre, start, length) => [centre - (centre - start) / factor, centre + (start + length - centre) / factor];
    const [low, high] = part(middle[0], box.x, box.width).map(drawn.x.back);
    const [top, bottom] = part(middle[1], box.y, box.height).map(drawn.y.back);
    zoomTo([low, high], [bottom, top]);
  }
  function step(key) {
    const spots = drawn.places;
    if (!spots.length) return;
    if (!told) return tell(spots[0], true);
    const groups = [...new Set(spots.map((spot) => spot.line))];
    const own = spots.filter((spot) => spot.line === told.line);
    const at = own.findIndex((spot) => spot.point === told.point);
    if (key === "ArrowLeft" || key === "ArrowRight") {
      const next = own[at + (key === "ArrowRight" ? 1 : -1)];
      return next && tell(next, true);
    }
    const next = groups[groups.indexOf(told.line) + (key === "ArrowDown" ? 1 : -1)];
    const others = spots.filter((spot) => spot.line === next);
    const near = others.sort((a, b) => Math.abs(a.at[0] - told.at[0]) - Math.abs(b.at[0] - told.at[0]))[0];
    if (near) tell(near, true);
  }
  paper.addEventListener("pointermove", (event) => {
    const at = place(event);
    if (from) {
      const [x, y] = [Math.min(at[0], from[0]), Math.min(at[1], from[1])];
      const box = { x, y, width: Math.abs(at[0] - from[0]), height: Math.abs(at[1] - from[1]), visibility: "visible" };
      return filled(brush, box, []);
    }
    const far = (spot) => Math.hypot(spot.at[0] - at[0], spot.at[1] - at[1]);
    const near = drawn.places.reduce((best, spot) => (!best || far(spot) < far(best) ? spot : best), null);
    return near && far(near) < NEAR ? tell(near) : forget();
  });
  paper.addEventListener("pointerdown", (event) => {
    from = event.button === 0 ? place(event) : null;
  });
  paper.addEventListener("pointerup", (event) => {
    const [start, at] = [from, place(event)];
    from = null;
    brush.setAttribute("visibility", "hidden");
    if (!start || Math.abs(at[0] - start[0]) < 6 || Math.abs(at[1] - start[1]) < 6) return;
    const ordered = (one, other) => [Math.min(one, other), Math.max(one, other)];
    zoomTo(ordered(drawn.x.back(start[0]), drawn.x.back(at[0])), ordered(drawn.y.back(start[1]), drawn.y.back(at[1])));
  });
  paper.addEventListener("pointerleave", () => {
    from = null;
    brush.setAttribute("visibility", "hidden");
    forget();
  });
  const reset = () => {
    view = whole(isLog);
    redraw();
  };
  paper.addEventListener("dblclick", reset);
  paper.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const factor = { "+": 1.5, "=": 1.5, "-": 1 / 1.5 }[event.key];
    if (event.key.startsWith("Arrow")) step(event.key);
    else if (factor) zoom(factor);
    else if (event.key === "0") reset();
    else return;
    event.preventDefault();
  });
  const toggle = (side) => {
    const change = ({ target }) => {
      isLog[side] = target.checked;
      reset();
    };
    return make("label", {}, make("input", { type: "checkbox", change }), ` log ${side}`);
  };
  const all_ = make("button", { type: "button", click: reset }, "Show all");
  const caption = make("figcaption", {}, make("strong", {}, panel), toggle("x"), toggle("y"), all_);
  redraw();
  return { element: make("figure", { class: "chart" }, caption, paper), redraw };
}
