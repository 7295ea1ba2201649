// Tables that are sorted by a click, or a key, on the head of a column.

const ORDERS = { ascending: 1, descending: -1 };

/** Make the heads of a table buttons that sort its rows. */
function sortable(table) {
  table.querySelectorAll("thead th").forEach((head, place) => {
    const name = head.textContent;
    const button = make("button", { type: "button", click: () => sort(table, place) }, name);
    button.append(make("span", { class: "arrow", "aria-hidden": "true" }));
    head.replaceChildren(button);
  });
  return table;
}

/** Sort a table by a column, upwards unless it is sorted so already; what is empty comes last. */
function sort(table, place) {
  const heads = [...table.querySelectorAll("thead th")];
  const was = heads[place].getAttribute("aria-sort");
  const order = was === "ascending" ? "descending" : "ascending";
  heads.forEach((head) => head.removeAttribute("aria-sort"));
  heads[place].setAttribute("aria-sort", order);
  const rows = [...table.tBodies[0].rows];
  const keys = new Map(rows.map((row) => [row, key(row.cells[place])]));
  const numeric = [...keys.values()].every((each) => each === "" || !Number.isNaN(Number(each)));
  const compare = numeric ? (a, b) => a - b : (a, b) => a.localeCompare(b, "en");
  rows.sort((one, other) => {
    const [a, b] = [keys.get(one), keys.get(other)];
    if (a === "" || b === "") return (a === "") - (b === "");
    return ORDERS[order] * compare(a, b);
  });
  table.tBodies[0].append(...rows);
  say(`Sorted by ${heads[place].textContent}, ${order}`);
}

function key(cell) {
  return cell.dataset.value ?? cell.textContent.trim();
}

/** A sortable table of a figure's columns. */
function dataTable(columns, caption) {
  const found = columns.map(cells);
  const numeric = columns.map((column) => Boolean(column.values));
  const heads = columns.map((column, place) =>
    make("th", { scope: "col", class: numeric[place] ? "number" : null }, column.name),
  );
  const body = make("tbody");
  for (let row = 0; row < found[0].length; row += 1) {
    const line = found.map((column, place) => {
      const value = column[row];
      if (!numeric[place]) return make("td", {}, value);
      return make("td", { class: "number", "data-value": value ?? "" }, value === null ? "" : read(value));
    });
    body.append(make("tr", {}, ...line));
  }
  const head = make("thead", {}, make("tr", {}, ...heads));
  const table = make("table", {}, make("caption", {}, caption), head, body);
  const within = { class: "wide tall", tabindex: "0", role: "region", "aria-label": caption };
  return make("div", within, sortable(table));
}

/** The same columns as text, each number as exact as it is. */
function asText(columns) {
  const found = columns.map(cells);
  const lines = [columns.map((column) => column.name)];
  for (let row = 0; row < found[0].length; row += 1) lines.push(found.map((column) => column[row] ?? ""));
  const quoted = (cell) => (/[",\n]/.test(cell) ? `"${String(cell).replaceAll('"', '""')}"` : cell);
  return lines.map((line) => line.map(quoted).join(",")).join("\n") + "\n";
}

/** Have the browser save a text as a file. */
function save(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
