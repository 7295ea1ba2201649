"""The page that is browsed, opened in a real browser with its scripts run; and Snakemake's own."""

import csv
import json
import re
import shutil
from contextlib import chdir
from dataclasses import replace

import pytest
from browser import MISSING, browser, program
from project import Project
from ptq_dynamics.claims.settings import CLAIMS
from ptq_dynamics.provenance.archive import Archive
from ptq_dynamics.provenance.remaking import remade
from ptq_dynamics.report.settings import OTHER, PAGE
from support import edit_yaml
from tracer import Traces

RESULTS = "results/smoke"
TARGETS = ("claims", "tables", "report")
# What HTML, JavaScript and reStructuredText could take for something else than text.
ODD = """</script><b>&amp; "it's" `x` *y* _z_ |w| {{ v }} ${u} \u2028 ü"""
LABEL = "Decay <i>&amp;\"'`"


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    return Traces(tmp_path_factory.mktemp("traces"))


@pytest.fixture(scope="module")
def project(built, tmp_path_factory, traces):
    """A copy of the built project whose first figure has odd words, with its page; traced."""
    copied = Project.copy(tmp_path_factory.mktemp("report") / "project", figures=built.figures)
    for place in ("results", "figures"):
        shutil.copytree(built.folder / place, copied.folder / place, symlinks=True)
    edit_yaml(copied.folder / "config/figures.yaml", make_odd)
    tracing = replace(copied, environment=traces.environment(copied.folder / "workflow"))
    done = tracing.snakemake(targets=TARGETS)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    traces.collect()
    return copied


def make_odd(figures):
    shown = figures["fig04"]
    shown |= {"title": ODD, "caption": ODD}
    shown["curves"] = {"Stable": shown["curves"]["Stable"], LABEL: shown["curves"]["Decay"]}


@pytest.fixture(scope="module")
def page(project, tmp_path_factory):
    """The page in a browser."""
    if program() is None:
        pytest.skip(MISSING)
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        opened.media(prefers_reduced_motion="reduce")
        opened.open(project.folder / RESULTS / PAGE)
        yield opened
        assert opened.troubles() == []


def text_of(page, selector):
    return page.run(f"[...document.querySelectorAll({selector!r})].map((e) => e.textContent)")


def drawn(project, figure):
    with (project.folder / f"figures/smoke/{figure}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def records(project):
    """The records of all results, by the path of the manifest."""
    with chdir(project.folder):
        return {path: each.record for path, each in Archive.of_scale("smoke").results.items()}


def test_it_opens_without_a_network_or_an_error(page):
    assert page.troubles() == []
    assert page.run("document.querySelectorAll('[src]:not([src^=\"data:\"])').length") == 0
    policy = page.run("document.querySelector('meta[http-equiv]').content")
    assert "default-src 'none'" in policy
    with pytest.raises(AssertionError, match="Failed to fetch"):
        page.run("fetch('https://example.org/')")
    # That is what the console tells of, and what a test of it is for.
    told = page.troubles()
    assert told and all("Content Security Policy" in each for each in told)
    page.events.clear()


def test_every_figure_is_shown_as_it_was_drawn_with_its_caption(project, page):
    assert page.run("[...document.querySelectorAll('article')].map((e) => e.id)") == project.chosen
    with chdir(project.folder):
        figures = project.plan.site.config.figures
    for name in project.chosen:
        image = f"document.querySelector('#{name} img')"
        assert page.run(f"{image}.decode().then(() => {image}.naturalWidth)") > 500
        held = page.run(f"atob({image}.src.split(',')[1]).length")
        assert held == (project.folder / f"figures/smoke/{name}.png").stat().st_size
        caption = " ".join(figures[name].caption.split())
        assert text_of(page, f"#{name} > figure > figcaption") == [caption]
        assert page.run(f"{image}.alt") == f"{figures[name].title}. {caption}"


def test_odd_words_come_out_as_they_are(page):
    assert text_of(page, "#fig04 h4") == [f"fig04: {ODD}"]
    assert page.run("document.querySelectorAll('b, i').length") == 0
    page.run("document.querySelector('#fig04 .values').open = true")
    page.run("new Promise((done) => setTimeout(done, 100))")
    assert text_of(page, "#fig04 .legend button") == [" Stable", f" {LABEL}"]


def test_a_table_is_sorted_by_a_key_and_by_a_click(project, page):
    page.run("document.querySelector('#fig06 .data').open = true")
    page.run("new Promise((done) => setTimeout(done, 100))")
    heads = "[...document.querySelectorAll('#fig06 thead th')]"
    at = page.run(f"{heads}.findIndex((e) => e.textContent === 'y')")
    page.run(f"{heads}[{at}].querySelector('button').focus()")
    known = sorted(float(row["y"]) for row in drawn(project, "fig06") if row["y"])
    values = (
        f"[...document.querySelectorAll('#fig06 tbody tr')].map((row) => row.cells[{at}])"
        ".map((cell) => cell.dataset.value).filter(Boolean).map(Number)"
    )
    assert page.run(values) != known
    page.press("Enter")
    assert page.run(f"{heads}[{at}].ariaSort") == "ascending"
    assert page.run(values) == known
    page.run("document.activeElement.click()")
    assert page.run(f"{heads}.map((e) => e.ariaSort).filter(Boolean)") == ["descending"]
    assert page.run(values) == known[::-1]
    assert text_of(page, "#said") == ["Sorted by y, descending"]
    lacking = "table:not(:has(caption)), th:not([scope]), img:not([alt])"
    assert page.run(f"document.querySelectorAll({lacking!r}).length") == 0


def test_values_are_told_to_keys_and_pointer(project, page):
    first = drawn(project, "fig04")[0]
    paper = "document.querySelector('#fig04 .chart .paper')"
    page.run(f"{paper}.scrollIntoView({{block: 'center'}}); {paper}.focus()")
    page.press("ArrowRight")
    (said,) = text_of(page, "#said")
    told = re.search(r"x (\S+), y (\S+),", said)
    assert float(told[1].replace(",", "")) == float(first["x"])
    assert float(told[2]) == pytest.approx(float(first["y"]), rel=1e-4)
    assert said.startswith(f"Stable, {first['segment']}: ")
    page.run(f"{paper}.dispatchEvent(new PointerEvent('pointerleave'))")
    assert page.run(f"{paper}.querySelector('.tip').hidden")
    dot = page.run(
        f"(() => {{ const box = {paper}.querySelector('.ring').getBoundingClientRect(); "
        "return [box.x + box.width / 2, box.y + box.height / 2]; })()"
    )
    page.point(*dot)
    assert page.run(f"{paper}.querySelector('.tip').textContent") == said
    before = page.run(f"{paper}.querySelector('svg').textContent")
    page.press("+")
    assert page.run(f"{paper}.querySelector('svg').textContent") != before
    page.press("0")
    assert page.run(f"{paper}.querySelector('svg').textContent") == before


def test_a_picture_is_enlarged_and_closed_by_keys(page):
    page.run("document.querySelector('#fig04 .zoom').focus()")
    page.press("Enter")
    page.press("+")
    assert page.run("document.querySelector('#viewer img').style.width") == "125%"
    page.press("Escape")
    assert not page.run("document.getElementById('viewer').open")
    assert page.run("document.activeElement.className") == "zoom"


def test_all_claims_are_listed_with_their_verdicts(project, page):
    judged = json.loads((project.folder / RESULTS / CLAIMS).read_text())["claims"]
    assert len(judged) > 15
    verdicts = [each.split(" ", 1)[1] for each in text_of(page, ".claim .verdict")]
    assert verdicts == [each["verdict"] for each in judged]
    rows = page.run(
        "[...document.querySelectorAll('.claim')].map((e) => e.querySelectorAll('tbody tr').length)"
    )
    assert rows == [len(each["inequalities"]) for each in judged]
    shown = text_of(page, ".claim summary")
    assert [
        each["says"] for each, text in zip(judged, shown, strict=True) if each["says"] not in text
    ] == []


# Opens a whole tree, and tells which jobs stand directly below each.
BELOW = """(() => {
  const found = {};
  const below = (item) => [...(item.querySelector(":scope > ul")?.children ?? [])]
    .flatMap((each) => (each.dataset.manifest ? [each.dataset.manifest] : below(each)));
  const walk = (item) => {
    if (item.ariaExpanded === "false") open(item);
    [...(item.querySelector(":scope > ul")?.children ?? [])].forEach(walk);
    if (item.dataset.manifest) found[item.dataset.manifest] = below(item).sort();
  };
  [...TREE.children].forEach(walk);
  return found;
})()"""


def test_the_tree_is_that_of_the_records(project, page):
    made = records(project)
    tops = page.run("[...TREE.children].map((item) => item.dataset.manifest)")
    drawn = [f"figures/smoke/{name}.manifest.json" for name in project.chosen]
    others = [f"{RESULTS}/claims.manifest.json", f"{RESULTS}/tables/manifest.json"]
    assert tops[: len(drawn)] == drawn and sorted(tops[len(drawn) :]) == sorted(others)
    found = page.run(BELOW)
    assert {path: set(below) for path, below in found.items()} == {
        path: set(made[path].inputs) for path in found
    }
    stages = {made[path].job["stage"].split(".")[0] for path in found}
    assert stages >= {"figures", "measure", "quantize", "trajectories", "corpus"}


def test_keys_walk_the_tree_and_tell_of_every_job(project, page):
    made = records(project)
    page.run("document.querySelector('#fig04 .origin').click()")
    here = "document.activeElement.closest('[role=treeitem]')"
    assert page.run(f"{here}.dataset.manifest") == "figures/smoke/fig04.manifest.json"
    assert page.run(f"{here}.ariaExpanded") == "true"
    seen = set()
    for _ in range(6):
        page.press("ArrowRight")
        manifest = page.run(f"{here}.dataset.manifest")
        if manifest is None:
            continue
        seen.add(made[manifest].job["stage"].split(".")[0])
        told = page.run("ABOUT.textContent")
        account = made[manifest]
        for each in (account.output[manifest], account.identity, account.started):
            assert each in told
        assert (account.git.commit if account.git else "none") in told
        assert account.machine.processor in told
    assert {"measure", "trajectories"} <= seen
    assert page.run("document.querySelectorAll('[role=treeitem][tabindex=\"0\"]').length") == 1
    page.press("Home")
    page.press("ArrowLeft")
    assert page.run(f"{here}.ariaExpanded") == "false"


def test_both_schemes_of_colours_and_the_switch(page):
    ground = "getComputedStyle(document.body).backgroundColor"
    seen = {}
    for scheme in ("dark", "light"):
        page.media(prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
        seen[scheme] = page.run(ground)
    assert seen["light"] == "rgb(255, 255, 255)" != seen["dark"]
    page.run("document.querySelector('.scheme [data-scheme=dark]').click()")
    assert page.run(ground) == seen["dark"]
    page.run("document.querySelector('.scheme [data-scheme=auto]').click()")
    assert page.run(ground) == seen["light"]
    assert page.run("getComputedStyle(document.documentElement).scrollBehavior") == "auto"


def test_it_prints_without_what_only_a_screen_has(project, page):
    printed = page.pdf()
    assert printed.startswith(b"%PDF") and printed.count(b"/Type /Page\n") >= len(project.chosen)
    page.call("Emulation.setEmulatedMedia", media="print")
    gone = [
        page.run(f"document.querySelector('{each}').offsetParent") for each in ("nav", ".scheme")
    ]
    page.call("Emulation.setEmulatedMedia", media="")
    assert gone == [None, None]


def test_it_comes_out_again_as_it_is(project, traces, monkeypatch):
    """And every function that made it is in its fingerprint."""
    assert {stage for stage, _ in traces.entered} >= {"report.page"}
    missed, _ = traces.missed(project.folder / "workflow")
    assert not missed
    monkeypatch.setenv("PYTHONPATH", project.variables()["PYTHONPATH"])
    with chdir(project.folder):
        archive = Archive.of_scale("smoke")
        found = [r for r in archive.results.values() if r.record.job["stage"] == "report.page"]
        assert len(found) == 1 and list(remade(found, at_once=1)) == []


def test_only_what_the_page_shows_makes_it_anew(project):
    wanted = {"figures", "claims", "tables"}
    targets = ("figures", *TARGETS)
    assert project.planned(targets=targets) <= wanted
    assets = "workflow/ptq_dynamics/report/assets"
    with project.edited(f"{assets}/style.css", f"{assets}/tree.js") as (style, script):
        style.write_text(style.read_text() + "h1 { margin: 0; }\n")
        assert project.planned(targets=targets) - wanted == {"report"}
        script.write_text(script.read_text() + "// Another line.\n")
    with project.edited("config/figures.yaml") as (figures,):
        edit_yaml(figures, lambda found: found["fig06"].update(caption="Otherwise."))
        assert project.planned(targets=targets) - wanted == {"report"}


@pytest.fixture(scope="module")
def own_report(project):
    """Snakemake's own report, made without a network."""
    nowhere = {"https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
    offline = replace(project, environment=nowhere)
    place = project.folder / RESULTS / OTHER
    done = offline.snakemake("--report", str(place), targets=("figures",))
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return place


def test_snakemakes_own_report_has_categories_captions_and_labels(project, own_report):
    text = own_report.read_text()
    results = json.loads(re.search(r"var results = (\{.*\});\n", text)[1])
    categories = json.loads(re.search(r"var categories = (\{.*\});\n", text)[1])
    assert list(categories) == ["Runs of the paper"]
    with chdir(project.folder):
        figures = project.plan.site.config.figures
    for name in project.chosen:
        shown = results[f"figures/smoke/{name}.png"]
        labels = {key: each.replace("\u2060", "") for key, each in shown["labels"].items()}
        assert labels == {"figure": name, "title": figures[name].title, "form": "picture"}
    said = results["figures/smoke/fig04.png"]["caption"].replace("\u2060", "")
    assert "&lt;/script&gt;&lt;b&gt;&amp;amp;" in said and "*y* _z_ |w|" in said
    assert not re.search(r"system-message|<em>|<a ", said)


def test_snakemakes_own_report_opens_without_a_network(project, own_report, tmp_path):
    if program() is None:
        pytest.skip(MISSING)
    with browser(tmp_path) as opened:
        opened.open(own_report)
        opened.run("app.showCategory('Runs of the paper')")
        shown = "document.getElementById('app').textContent"
        named = f"{shown}.includes('{project.chosen[-1]}')"
        opened.run(f"new Promise((done) => setInterval(() => {named} && done(), 50))")
        assert [name for name in project.chosen if name not in opened.run(shown)] == []
        # That of a style sheet that is meant for other uses.
        assert [each for each in opened.troubles() if "tailwindcss" not in each] == []
