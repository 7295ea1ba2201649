// What all scripts of the page share: its data, how elements are made, and how numbers are written.

const held = JSON.parse(document.getElementById("held").textContent);
const SVG = "http://www.w3.org/2000/svg";

/** An element; attributes that are functions are listeners, and text stays text. */
function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same of a drawing. */
function draw(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== undefined && value !== null) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Tell those who hear the page. */
function say(text) {
  document.getElementById("said").textContent = text;
}

/** The cells of a column: numbers, or words. */
function cells(column) {
  return column.values ?? column.at.map((place) => column.words[place]);
}

/** The columns of a figure's table, by name. */
function byName(columns) {
  return Object.fromEntries(columns.map((column) => [column.name, cells(column)]));
}

/** A number for an axis: 12k, 0.05, 3e-4. */
function short(number) {
  const size = Math.abs(number);
  if (size === 0) return "0";
  for (const [unit, step] of [["T", 1e12], ["B", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (size >= step) return `${trimmed(number / step)}${unit}`;
  }
  return size < 1e-3 ? number.toExponential(2).replace(/\.?0+e/, "e") : trimmed(number);
}

function trimmed(number) {
  return String(Number(number.toPrecision(4)));
}

/** A number as people read it, to six digits. */
function read(number) {
  if (number === null || number === undefined) return "none";
  if (Number.isInteger(number)) return number.toLocaleString("en");
  const size = Math.abs(number);
  return size >= 1e-4 && size < 1e6
    ? String(Number(number.toPrecision(6)))
    : number.toExponential(4).replace(/\.?0+e/, "e");
}
