// Puts the page together once it is read.

document.querySelectorAll("table.sortable").forEach(sortable);
document.querySelectorAll("article.figure").forEach(prepare);
if (document.getElementById("curves")) training(document.getElementById("curves"));
origins(document.getElementById("origins"));

// The scheme of colours: as the system has it, unless another one was chosen here before.
const REMEMBERED = "ptq-dynamics-colours";

function colour(scheme) {
  document.documentElement.dataset.scheme = scheme;
  document.querySelectorAll("[data-scheme][aria-pressed]").forEach((button) => {
    button.setAttribute("aria-pressed", String(button.dataset.scheme === scheme));
  });
}

// What a browser keeps of files that are opened from a disk differs; without it all else works.
function kept(change) {
  try {
    return change(window.localStorage);
  } catch {
    return null;
  }
}

colour(kept((store) => store.getItem(REMEMBERED)) ?? "auto");
document.querySelectorAll(".scheme button").forEach((button) => {
  button.addEventListener("click", () => {
    colour(button.dataset.scheme);
    kept((store) => store.setItem(REMEMBERED, button.dataset.scheme));
  });
});

// Claims by verdict.
document.querySelectorAll(".filter button").forEach((button) => {
  button.addEventListener("click", () => {
    const isShown = button.getAttribute("aria-pressed") === "false";
    button.setAttribute("aria-pressed", String(isShown));
    document.querySelectorAll("details.claim").forEach((claim) => {
      if (claim.dataset.verdict === button.dataset.verdict) claim.hidden = !isShown;
    });
  });
});

// A link to a claim opens it; a narrow window begins with its contents closed.
function arrive() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target instanceof HTMLDetailsElement) target.open = true;
}
window.addEventListener("hashchange", arrive);
arrive();
if (window.matchMedia("(max-width: 60rem)").matches) document.querySelector("nav details").open = false;
