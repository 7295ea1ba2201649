// One panel drawn as an SVG: scales, axes, lines, bands, marks.

const SIZE = { width: 420, height: 280, left: 56, right: 52, top: 10, bottom: 30 };
const DASHES = { "-": null, "--": "5 3", "-.": "6 2 1.5 2" };
// Marks of matplotlib as paths of about 6 units across.
const MARKS = {
  o: "M3 0A3 3 0 1 1-3 0 3 3 0 1 1 3 0Z", s: "M-2.7-2.7h5.4v5.4h-5.4Z", "^": "M0-3.4 3 2.6H-3Z",
  v: "M0 3.4 3-2.6H-3Z", "<": "M-3.4 0 2.6-3V3Z", ">": "M3.4 0-2.6-3V3Z", D: "M0-3.6 3.6 0 0 3.6-3.6 0Z",
  P: "M-1-3H1V-1H3V1H1V3H-1V1H-3V-1H-1Z", X: "M-3-2-2-3 0-1 2-3 3-2 1 0 3 2 2 3 0 1-2 3-3 2-1 0Z",
  h: "M0-3.2 2.8-1.6V1.6L0 3.2-2.8 1.6V-1.6Z", p: "M0-3.2 3-1 1.9 2.6H-1.9L-3-1Z",
  "*": "M0-4.6 1.2-1.5 4.4-1.4 1.9.6 2.7 3.7 0 1.9-2.7 3.7-1.9.6-4.4-1.4-1.2-1.5Z",
};
const FEW = 80; // points of a line, of which each has a mark
let areas = 0;

/** From values to places: linear or logarithmic, from [low, high] to [start, end]. */
function scale([low, high], [start, end], isLog) {
  const turn = isLog ? Math.log10 : (value) => value;
  const [first, last] = [turn(low), turn(high)];
  const place = (value) => start + ((turn(value) - first) / (last - first)) * (end - start);
  place.back = (at) => {
    const value = first + ((at - start) / (end - start)) * (last - first);
    return isLog ? 10 ** value : value;
  };
  return place;
}

/** Round numbers within a range, about five; of a logarithmic one 1, 2 and 5 times powers of ten. */
function ticks([low, high], isLog) {
  if (isLog) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
      for (const times of high / low > 1e3 ? [1] : [1, 2, 5]) found.push(times * 10 ** power);
    }
    const within = found.filter((tick) => tick >= low && tick <= high);
    if (within.length > 1) return within;
  }
  const rough = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((each) => each >= 0.7 * rough);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, at) => (first + at) * step);
}

/** The range of numbers with some room; of logarithmic axes, of those above zero. */
function range(numbers, isLog) {
  let [low, high] = [Infinity, -Infinity];
  for (const number of numbers) {
    if (number === null || (isLog && number <= 0)) continue;
    low = Math.min(low, number);
    high = Math.max(high, number);
  }
  if (low > high) return isLog ? [1, 10] : [0, 1];
  if (isLog) return low === high ? [low / 2, high * 2] : [low / (high / low) ** 0.04, high * (high / low) ** 0.04];
  const room = low === high ? Math.abs(low) / 10 || 1 : (high - low) * 0.04;
  return [low - room, high + room];
}

/** Lines of one panel (see `lines` in chart.js) in a view: ranges of x, y and right, log of x and y. */
function plot(lines, view, name) {
  const { width, height, left, right, top, bottom } = SIZE;
  const x = scale(view.x, [left, width - right], view.logX);
  const y = scale(view.y, [height - bottom, top], view.logY);
  const beside = scale(view.right, [height - bottom, top], false);
  const area = `area-${(areas += 1)}`;
  const box = { x: left, y: top, width: width - left - right, height: height - top - bottom };
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": name });
  svg.append(draw("clipPath", { id: area }, draw("rect", box)), draw("rect", { ...box, class: "area" }));
  for (const tick of ticks(view.x, view.logX)) {
    const at = x(tick);
    svg.append(draw("path", { class: "grid", d: `M${at} ${top}V${height - bottom}` }));
    svg.append(draw("text", { x: at, y: height - bottom + 15, "text-anchor": "middle" }, short(tick)));
  }
  for (const tick of ticks(view.y, view.logY)) {
    const at = y(tick);
    svg.append(draw("path", { class: "grid", d: `M${left} ${at}H${width - right}` }));
    svg.append(draw("text", { x: left - 5, y: at + 4, "text-anchor": "end" }, short(tick)));
  }
  if (lines.some((line) => line.axis === "right")) {
    for (const tick of ticks(view.right, false)) {
      svg.append(draw("text", { x: width - right + 5, y: beside(tick) + 4, class: "right" }, short(tick)));
    }
  }
  const drawn = draw("g", { "clip-path": `url(#${area})` });
  const places = [];
  for (const line of lines) {
    const up = line.axis === "right" ? beside : y;
    const known = line.points.filter((point) => isShown(point, view, line.axis));
    const spots = known.map((point) => ({ line, point, at: [x(point.x), up(point.y)] }));
    if (line.isShaded) drawn.append(...squares(spots, x, y));
    else drawn.append(...strokes(line, spots, y, view));
    places.push(...spots);
  }
  svg.append(drawn);
  return { svg, places, x, y, box };
}

function isShown(point, view, axis) {
  const isMissing = point.x === null || point.y === null;
  const isBelow = (view.logX && point.x <= 0) || (view.logY && axis !== "right" && point.y <= 0);
  return !isMissing && !isBelow;
}

/** Band, line and marks of a curve. */
function strokes(line, spots, y, view) {
  const { color, dash, mark } = line.look;
  const path = (places) => places.map(([across, up]) => `${across.toFixed(2)} ${up.toFixed(2)}`).join("L");
  const found = [];
  const banded = spots.filter(({ point }) => point.low !== null && (!view.logY || point.low > 0));
  if (line.isLine && banded.length > 1) {
    const upper = banded.map(({ point, at }) => [at[0], y(point.high)]);
    const lower = banded.map(({ point, at }) => [at[0], y(point.low)]).reverse();
    found.push(draw("path", { d: `M${path([...upper, ...lower])}Z`, fill: color, opacity: 0.18 }));
  } else {
    const bars = banded.map(({ point, at }) => `M${at[0]} ${y(point.low)}V${y(point.high)}`);
    found.push(draw("path", { d: bars.join(""), stroke: color, opacity: 0.6 }));
  }
  const isAlone = line.axis === "level" && spots.length === 1;
  if ((line.isLine && spots.length > 1) || isAlone) {
    const dashes = line.axis === "right" ? "1.5 2.5" : line.axis === "level" ? "5 3" : DASHES[dash];
    const look = { fill: "none", stroke: color, "stroke-dasharray": dashes };
    const wide = line.axis === "left" ? 1.5 : 1;
    const ends = isAlone ? [-12, 12].map((by) => [spots[0].at[0] + by, spots[0].at[1]]) : spots.map(({ at }) => at);
    found.push(draw("path", { d: `M${path(ends)}`, "stroke-width": wide, ...look }));
  }
  if (line.axis === "left" && (spots.length <= FEW || !line.isLine)) {
    for (const { at } of spots) {
      const place = `translate(${at[0].toFixed(2)} ${at[1].toFixed(2)})`;
      found.push(draw("path", { d: MARKS[mark] ?? MARKS.o, fill: color, transform: `${place} scale(.8)` }));
    }
  }
  return found;
}

/** A grid whose squares are the darker, the larger what lies there is. */
function squares(spots, x, y) {
  const different = (of) => [...new Set(spots.map(of))].sort((a, b) => a - b);
  const side = (values) => Math.abs(values[1] - values[0]) * 1.02 || 4;
  const [wide, tall] = [side(different(({ at }) => at[0])), side(different(({ at }) => at[1]))];
  const shades = spots.map(({ point }) => point.shade);
  const [least, most] = [Math.min(...shades), Math.max(...shades)];
  return spots.map(({ point, at }) => {
    const share = Math.sqrt((point.shade - least) / (most - least || 1));
    const fill = `hsl(225 35% ${(94 - 70 * share).toFixed(1)}%)`;
    return draw("rect", { x: at[0] - wide / 2, y: at[1] - tall / 2, width: wide, height: tall, fill });
  });
}
