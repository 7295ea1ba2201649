// The tree of what results were made from, opened step by step, by pointer or keys.

const { jobs, commits, machines } = held.chain;
// Rooms of stages, from what is seen down to the text.
const ROOMS = ["figures", "claims", "measure", "geometry", "quantize", "trajectories", "hub", "corpus"];
const TREE = make("ul", { role: "tree", "aria-label": "What results were made from" });
const ABOUT = make("div", { class: "about", role: "region", "aria-label": "The chosen job", tabindex: "0" });

/** Nodes for jobs, in groups by stage where they are of several or many. */
function nodes(places) {
  const stages = new Map();
  for (const place of places) {
    const stage = jobs[place].stage;
    stages.set(stage, [...(stages.get(stage) ?? []), place]);
  }
  const rank = (stage) => (ROOMS.indexOf(stage.split(".")[0]) + ROOMS.length + 1) % (ROOMS.length + 1);
  const ordered = [...stages].sort(([a], [b]) => rank(a) - rank(b) || a.localeCompare(b, "en"));
  return ordered.flatMap(([stage, members]) => {
    const sorted = members.sort((a, b) => jobs[a].label.localeCompare(jobs[b].label, "en", { numeric: true }));
    const many = members.length > 3 && (ordered.length > 1 || members.length > 40);
    return many ? [{ text: `${members.length} × ${stage}`, below: () => sorted.map(node) }] : sorted.map(node);
  });
}

function node(place) {
  const job = jobs[place];
  const inputs = job.inputs ?? [];
  const title = held.figures[nameOf(job)]?.title;
  const text = job.stage.startsWith("figures.") && title ? `${nameOf(job)}: ${title}` : job.label;
  return { text, job, below: inputs.length ? () => nodes(inputs) : null };
}

/** An item of the tree at a level. */
function item(each, level) {
  const label = make("span", { class: "label" }, each.text);
  const made = make("li", { role: "treeitem", "aria-level": level, tabindex: "-1", "aria-selected": "false" }, label);
  if (each.below) made.setAttribute("aria-expanded", "false");
  if (each.job) made.dataset.manifest = each.job.manifest;
  made.about = each;
  return made;
}

function open(made) {
  if (made.getAttribute("aria-expanded") !== "false") return;
  if (!made.querySelector("ul")) {
    const level = Number(made.getAttribute("aria-level")) + 1;
    const below = made.about.below().map((each) => item(each, level));
    made.append(make("ul", { role: "group" }, ...below));
  }
  made.setAttribute("aria-expanded", "true");
}

function shut(made) {
  if (made.getAttribute("aria-expanded") === "true") made.setAttribute("aria-expanded", "false");
}

/** Choose an item, and tell of its job. */
function choose(made, focus = true) {
  for (const other of TREE.querySelectorAll("[tabindex='0'], [aria-selected='true']")) {
    other.tabIndex = -1;
    other.setAttribute("aria-selected", "false");
  }
  made.tabIndex = 0;
  made.setAttribute("aria-selected", "true");
  if (focus) made.focus();
  if (made.about.job) ABOUT.replaceChildren(...account(made.about.job));
}

/** What the record of a job says. */
function account(job) {
  const heading = make("h3", {}, job.label);
  if (!job.digest) return [heading, make("p", {}, `Of ${job.manifest} as it was then there is no record here.`)];
  const commit = commits[job.commit];
  const machine = machines[job.machine];
  const facts = {
    Stage: job.stage,
    Manifest: job.manifest,
    Digest: job.digest,
    Identity: job.identity,
    Commit: commit.commit ? commit.commit + (commit.changed ? ", with changes" : "") : "none",
    Started: job.started,
    Took: `${read(job.seconds)} s, ${job.processes}`,
    Machine: `${machine.processor}, ${machine.cores} cores, ${machine.system} ${machine.architecture}, Python ${machine.python}`,
    Device: machine.accelerator ?? machine.device,
    Tokens: job.tokens === null ? null : read(job.tokens),
    Accepted: job.accepted.join("; ") || null,
    Inputs: String(job.inputs.length),
  };
  const told = Object.entries(facts).filter(([, value]) => value !== null);
  return [heading, make("dl", {}, ...told.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]))];
}

function seen() {
  return [...TREE.querySelectorAll("[role=treeitem]")].filter((each) => each.offsetParent !== null);
}

function pressed(event) {
  const made = event.target.closest("[role=treeitem]");
  if (!made || event.ctrlKey || event.metaKey || event.altKey) return;
  const all = seen();
  const at = all.indexOf(made);
  const isOpen = made.getAttribute("aria-expanded");
  const moves = {
    ArrowDown: () => all[at + 1],
    ArrowUp: () => all[at - 1],
    Home: () => all[0],
    End: () => all[all.length - 1],
    ArrowRight: () => (isOpen === "false" ? open(made) : isOpen && all[at + 1]),
    ArrowLeft: () => (isOpen === "true" ? shut(made) : made.parentElement.closest("[role=treeitem]")),
    Enter: () => (isOpen === "true" ? shut(made) : open(made)) ?? made,
    " ": () => made,
  };
  const move = moves[event.key];
  if (!move) return;
  event.preventDefault();
  const next = move();
  if (next) choose(next);
}

/** Put the tree into the page. */
function origins(place) {
  const used = new Set(jobs.flatMap((job) => job.inputs ?? []));
  const tops = jobs.map((_, at) => at).filter((at) => !used.has(at) || /^(figures|claims)\./.test(jobs[at].stage));
  const items = nodesOf(tops);
  items[0].tabIndex = 0;
  TREE.append(...items);
  TREE.addEventListener("keydown", pressed);
  TREE.addEventListener("click", (event) => {
    const made = event.target.closest("[role=treeitem]");
    if (!made) return;
    made.getAttribute("aria-expanded") === "true" ? shut(made) : open(made);
    choose(made);
  });
  choose(items[0], false);
  place.append(make("div", { class: "origins" }, TREE, ABOUT));
}

function nodesOf(tops) {
  const order = Object.keys(held.figures);
  const place = (at) => (order.indexOf(nameOf(jobs[at])) + 1 || order.length + 1);
  return tops.sort((a, b) => place(a) - place(b)).map((at) => item(node(at), 1));
}

function nameOf(job) {
  return job.label.slice(job.label.indexOf(" ") + 1);
}

/** Go to a figure in the tree, and open it. */
function reveal(name) {
  const made = [...TREE.children].find((each) => each.about.job.stage.startsWith("figures.") && nameOf(each.about.job) === name);
  if (!made) return document.getElementById("provenance").scrollIntoView();
  open(made);
  made.scrollIntoView({ block: "center" });
  choose(made);
}
