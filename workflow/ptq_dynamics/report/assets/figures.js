// Figures: their values, their tables, and the training curves of their runs.

const UNITS =
  "Axes and panels are those of the picture above. Errors and accuracies are shares here: 0.01 is 1 %.";
const WORDS = { loss: "Loss (nats/token)", lr: "Learning rate", gradient_norm: "L2 norm of the gradient", weight_norm: "L2 norm of the weights" };

/** Fill what a figure has below its picture when it is opened first. */
function prepare(article) {
  const name = article.dataset.figure;
  const figure = held.figures[name];
  article.querySelector(".zoom").addEventListener("click", () => enlarge(article));
  whenOpened(article.querySelector(".values"), () => [
    make("p", { class: "hint" }, UNITS),
    charts(lines(figure), name),
  ]);
  whenOpened(article.querySelector(".data"), () => [
    dataTable(figure.columns, `What ${name} draws`),
    make("button", { type: "button", click: () => save(`${name}.csv`, asText(figure.columns)) }, "Save as CSV"),
  ]);
  article.querySelector(".origin").addEventListener("click", (event) => {
    event.preventDefault();
    reveal(name);
  });
}

function whenOpened(details, fill) {
  details.addEventListener("toggle", () => details.append(...fill()), { once: true });
}

/** Training curves: a figure and a column are chosen, and its runs are drawn. */
function training(place) {
  const shown = Object.entries(held.figures).filter(([, figure]) => figure.runs.length);
  const columns = [...new Set(Object.values(held.runs).flatMap(Object.keys))].filter((name) => name !== "step" && name !== "tokens");
  const choose = (label, options, change) => {
    const list = make("select", { change }, ...options.map(([value, text]) => make("option", { value }, text)));
    return [list, make("label", {}, `${label} `, list)];
  };
  const redraw = () => panel.replaceChildren(charts(runs(figure.value, column.value), `Training curves, ${figure.value}`));
  const [figure, one] = choose("Figure", shown.map(([name, each]) => [name, `${name}: ${each.title}`]), redraw);
  const [column, other] = choose("Column", columns.map((name) => [name, WORDS[name] ?? name]), redraw);
  const panel = make("div");
  place.append(make("p", { class: "choices" }, one, other), panel);
  redraw();
}

/** Lines of a column against tokens, one for every run of a figure. */
function runs(figure, column) {
  return held.figures[figure].runs.map((label, at) => {
    const run = held.runs[label];
    const points = run.tokens.map((x, row) => ({ x, y: run[column]?.[row] ?? null, low: null, high: null, more: [`step ${read(run.step[row])}`] }));
    const name = label.replace(/^run /, "");
    return { panel: WORDS[column] ?? column, curve: name, segment: name, axis: "left", look: held.palette[at % held.palette.length], isLine: true, points };
  });
}
