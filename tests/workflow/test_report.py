"""The page that is browsed, opened in a real browser with its scripts run."""

import csv
from contextlib import chdir

import pytest
from browser import MISSING, browser, program
from ptq_dynamics.provenance.archive import Archive
from ptq_dynamics.provenance.audit import rerun
from ptq_dynamics.report.page import PAGE
from support import edit_yaml

RESULTS = "results/smoke"
TARGETS = ("figures", "report")
# What HTML and JavaScript could take for something else than text.
ODD = """</script><b>&amp; "it's" `x` {{ v }} ${u} \u2028 ü"""
WAIT = "new Promise((done) => setTimeout(done, 200))"


@pytest.fixture(scope="module")
def project(built, tmp_path_factory):
    """A copy of the built project whose first figure has odd words, with its page."""
    copied = built.copied(tmp_path_factory.mktemp("report") / "project")
    edit_yaml(
        copied.folder / "config/figures.yaml",
        lambda found: found["fig04"].update(title=ODD, caption=ODD),
    )
    done = copied.snakemake(targets=TARGETS)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return copied


@pytest.fixture(scope="module")
def page(project, tmp_path_factory):
    """The page in a browser."""
    if program() is None:
        pytest.skip(MISSING)
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        opened.open(project.folder / RESULTS / PAGE)
        yield opened
        assert opened.troubles() == []


def drawn(project, figure):
    with (project.folder / f"figures/smoke/{figure}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_it_opens_without_a_network_or_an_error(page):
    assert page.troubles() == []
    assert page.run("document.querySelectorAll('[src]:not([src^=\"data:\"])').length") == 0
    with pytest.raises(AssertionError, match="Failed to fetch"):
        page.run("fetch('https://example.org/')")
    told = page.troubles()
    assert told and all("Content Security Policy" in each for each in told)
    page.events.clear()


def test_every_figure_is_shown_as_it_was_drawn_with_its_caption(project, page):
    assert page.run("[...document.querySelectorAll('article')].map((e) => e.id)") == project.chosen
    for name in project.chosen:
        image = f"document.querySelector('#{name} img')"
        assert page.run(f"{image}.decode().then(() => {image}.naturalWidth)") > 500
        held = page.run(f"atob({image}.src.split(',')[1]).length")
        assert held == (project.folder / f"figures/smoke/{name}.png").stat().st_size
    assert page.run("document.querySelector('#fig04 h3').textContent") == f"fig04: {ODD}"
    assert page.run("document.querySelector('#fig04 figcaption').textContent") == " ".join(
        ODD.split()
    )
    assert page.run("document.querySelectorAll('b').length") == 0


def test_points_are_sorted_by_a_key_and_by_a_click(project, page):
    page.run("document.querySelector('#fig07 .points').open = true")
    page.run(WAIT)
    heads = "[...document.querySelectorAll('#fig07 thead th')]"
    at = page.run(f"{heads}.findIndex((e) => e.textContent === 'y')")
    known = sorted(float(row["y"]) for row in drawn(project, "fig07") if row["y"])
    values = (
        f"[...document.querySelectorAll('#fig07 tbody tr')].map((row) => row.cells[{at}])"
        ".map((cell) => cell.textContent).filter(Boolean).map(Number)"
    )
    assert page.run(values) != known
    page.run(f"{heads}[{at}].focus()")
    page.press("Enter")
    assert page.run(f"{heads}[{at}].ariaSort") == "ascending" and page.run(values) == known
    page.run(f"{heads}[{at}].click()")
    assert page.run(values) == known[::-1]


def test_a_point_opens_its_trace(project, page):
    page.run("document.querySelector('#fig04 .points').open = true")
    page.run(WAIT)
    run = drawn(project, "fig04")[0]["segment"]
    page.run("document.querySelector('#fig04 .points tbody tr').click()")
    for _ in range(5):
        page.run("document.querySelectorAll('#trace details').forEach((e) => { e.open = true; })")
        page.run(WAIT)
    found = page.run("[...document.querySelectorAll('#trace li')].map((e) => e.dataset.manifest)")
    assert found[0] == "figures/smoke/fig04.manifest.json"
    assert f"{RESULTS}/corpus/main/manifest.json" in found
    with chdir(project.folder):
        made = Archive.of_scale("smoke").results
    assert {*found} <= made.keys()
    others = {path.split("/")[3] for path in found if "/train/" in path or "/measure/" in path}
    assert others == {run}
    page.press("Escape")
    assert not page.run("document.getElementById('trace').open")
    # A loss in full precision comes from no quantized weights; this one is found in the picture.
    rows = drawn(project, "fig04")
    number = next(n for n, row in enumerate(rows) if row["quantizer"] == "fp")
    page.run(f"""((image, [across, up]) => image.dispatchEvent(new MouseEvent("click", {{
        clientX: image.getBoundingClientRect().left + across * image.clientWidth + 1,
        clientY: image.getBoundingClientRect().top + (1 - up) * image.clientHeight - 1,
    }})))(document.querySelector("#fig04 img"), read("points-fig04").places[{number}])""")
    page.run(WAIT)
    value = f"y {rows[number]['y']}, unit nats/token"
    assert value in page.run("document.querySelector('#trace p').textContent")
    found = page.run("[...document.querySelectorAll('#trace li')].map((e) => e.dataset.manifest)")
    assert len(found) == 2 and "/fp/" in found[1]
    page.press("Escape")


def test_a_claim_opens_its_numbers(project, page):
    with (project.folder / RESULTS / "tables/claims.csv").open(newline="") as file:
        rows = [*csv.DictReader(file)]
    names = [row["Claim"] for row in rows if row["Claim"]]
    assert len(names) == page.run("document.querySelectorAll('.claim').length") > 15
    shown = page.run("[...document.querySelectorAll('.claim tbody tr')].map((e) => e.innerHTML)")
    for row, cells in zip(rows, shown, strict=True):
        errors = [head for head in row if head.endswith("(error)") and row[head]]
        assert row["Measured"] in cells and cells.count(" ± ") == len(errors), row
    page.run("document.querySelector('.claim summary').click()")
    assert page.run("document.querySelector('.claim').open")


def test_it_comes_out_again_and_another_template_makes_it_anew_alone(project, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", project.variables()["PYTHONPATH"])
    with chdir(project.folder):
        found = [each for each in Archive.of_scale("smoke").every if each.stage == "report.page"]
        assert len(found) == 1 and list(rerun(found)) == []
    with project.edited("workflow/ptq_dynamics/report/page.html") as (template,):
        template.write_text(template.read_text() + "\n")
        assert project.planned(targets=TARGETS) == {"index"}
