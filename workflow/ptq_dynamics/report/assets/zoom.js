// A picture as drawn, enlarged: wheel, buttons or + and − zoom, dragging or arrow keys move it.

const STEP = 1.25;
const viewer = document.getElementById("viewer");

/** Show a figure's picture in the whole window. */
function enlarge(article) {
  const picture = article.querySelector("img");
  const image = make("img", { src: picture.src, alt: picture.alt });
  const pane = make("div", { class: "pane", tabindex: "0", role: "region", "aria-label": "Picture" }, image);
  let scale = 1;
  const zoom = (factor) => {
    const [x, y] = ["scrollLeft", "scrollTop"].map((side) => pane[side]);
    const [width, height] = [pane.clientWidth / 2, pane.clientHeight / 2];
    const next = Math.min(16, Math.max(1, scale * factor));
    const by = next / scale;
    scale = next;
    image.style.width = `${100 * scale}%`;
    pane.scrollTo((x + width) * by - width, (y + height) * by - height);
    say(`${Math.round(100 * scale)} percent`);
  };
  const button = (text, label, click) => make("button", { type: "button", "aria-label": label, click }, text);
  const bar = make(
    "p",
    { class: "bar" },
    make("strong", {}, article.querySelector("h4").textContent),
    button("−", "Smaller", () => zoom(1 / STEP)),
    button("+", "Larger", () => zoom(STEP)),
    button("Whole", "Whole picture", () => zoom(0)),
    button("Close", "Close", () => viewer.close()),
  );
  pane.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(event.deltaY < 0 ? STEP : 1 / STEP);
  }, { passive: false });
  pane.addEventListener("pointermove", (event) => {
    if (event.buttons === 1) pane.scrollBy(-event.movementX, -event.movementY);
  });
  viewer.onkeydown = (event) => {
    const factor = { "+": STEP, "=": STEP, "-": 1 / STEP, 0: 0 }[event.key];
    if (factor !== undefined) zoom(factor);
  };
  image.draggable = false;
  viewer.replaceChildren(bar, pane);
  viewer.showModal();
  pane.focus();
}
