"""The page that is browsed, opened in a real browser with its scripts run."""

import csv
from contextlib import chdir

import pytest
from browser import MISSING, program, run
from ptq_dynamics.provenance.archive import Archive
from ptq_dynamics.provenance.audit import rerun
from ptq_dynamics.report.page import PAGE
from support import edit_yaml

RESULTS = "results/smoke"
TARGETS = ("figures", "report")
# What HTML and JavaScript could take for something else than text.
ODD = """</script><b>&amp; "it's" `x` {{ v }} ${u} \u2028 ü"""


@pytest.fixture(scope="module")
def project(project):
    """The built project, whose first figure has odd words, with its page."""
    edit_yaml(
        project.folder / "config/figures.yaml",
        lambda found: found["fig04"].update(title=ODD, caption=ODD),
    )
    project.build(targets=TARGETS)
    return project


@pytest.fixture
def ask(project, tmp_path):
    """What a script returns in the page, with nothing on the console."""
    if program() is None:
        pytest.skip(MISSING)

    def do(script):
        value, said = run(project.folder / RESULTS / PAGE, script, tmp_path)
        assert said == []
        return value

    return do


def drawn(project, figure):
    with (project.folder / f"figures/smoke/{figure}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_it_opens_without_a_network(project, tmp_path):
    if program() is None:
        pytest.skip(MISSING)
    script = """const outside = all('[src]:not([src^="data:"])').length;
        return [outside, await fetch('https://example.org/').catch(String)];"""
    (outside, answer), said = run(project.folder / RESULTS / PAGE, script, tmp_path)
    assert outside == 0 and "Failed to fetch" in answer
    assert said and all("Content Security Policy" in line for line in said)


def test_every_figure_is_shown_as_it_was_drawn_with_its_caption(project, ask):
    pictures, bold, *words = ask("""await wait();
        const sizes = all("article").map((e) => [e.id, e.querySelector("img")])
            .map(([id, img]) => [id, img.naturalWidth, atob(img.src.split(",")[1]).length]);
        const words = all("#fig04 h3, #fig04 figcaption").map((e) => e.textContent);
        return [sizes, all("b").length, ...words];""")
    assert [name for name, _, _ in pictures] == project.chosen and bold == 0
    for name, width, size in pictures:
        assert width > 500
        assert size == (project.folder / f"figures/smoke/{name}.png").stat().st_size
    assert words == [f"fig04: {ODD}", " ".join(ODD.split())]


TRACED = """const traced = () => all("#trace li").map((e) => e.dataset.manifest);
    all("#fig04 .points")[0].open = true;
    await wait();"""


def test_a_point_opens_its_trace(project, ask):
    manifests = ask(
        TRACED
        + """all("#fig04 .points tbody tr")[0].click();
        for (let count = 0; count < 5; count++) {
            all("#trace details").forEach((e) => { e.open = true; });
            await wait();
        }
        return traced();"""
    )
    assert manifests[0] == "figures/smoke/fig04.manifest.json"
    assert f"{RESULTS}/corpus/main/manifest.json" in manifests
    with chdir(project.folder):
        made = Archive.of_scale("smoke").results
    assert {*manifests} <= made.keys()
    runs = {path.split("/")[3] for path in manifests if "/train/" in path or "/measure/" in path}
    assert runs == {drawn(project, "fig04")[0]["segment"]}


def test_a_point_is_found_in_the_picture(project, ask):
    """The first loss in full precision within its panel; it comes from no quantized weights."""
    rows = drawn(project, "fig04")
    first = next(n for n, row in enumerate(rows) if row["quantizer"] == "fp")
    number, words, manifests = ask(
        TRACED
        + f"""const image = all("#fig04 img")[0];
        const {{ places }} = read("points-fig04");
        const number = places.findIndex((point, n) => point && n >= {first});
        const [across, up] = places[number];
        const place = image.getBoundingClientRect();
        image.dispatchEvent(new MouseEvent("click", {{
            clientX: place.left + across * image.clientWidth + 1,
            clientY: place.top + (1 - up) * image.clientHeight - 1,
        }}));
        await wait();
        return [number, all("#trace p")[0].textContent, traced()];"""
    )
    assert f"y {rows[number]['y']}, unit nats/token" in words
    assert len(manifests) == 2 and "/fp/" in manifests[1]


def test_a_claim_opens_its_numbers(project, ask):
    with (project.folder / RESULTS / "tables/claims.csv").open(newline="") as file:
        rows = [*csv.DictReader(file)]
    claims, shown, is_open = ask("""all(".claim summary")[0].click();
        const rows = all(".claim tbody tr").map((e) => e.innerHTML);
        return [all(".claim").length, rows, all(".claim")[0].open];""")
    assert claims == len([row for row in rows if row["Claim"]]) > 15 and is_open
    for row, cells in zip(rows, shown, strict=True):
        errors = [head for head in row if head.endswith("(error)") and row[head]]
        assert row["Measured"] in cells and cells.count(" ± ") == len(errors), row


def test_it_comes_out_again_and_another_template_makes_it_anew_alone(project, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", project.variables()["PYTHONPATH"])
    with chdir(project.folder):
        found = [each for each in Archive.of_scale("smoke").every if each.stage == "report.page"]
        assert len(found) == 1 and list(rerun(found)) == []
    with project.edited("workflow/ptq_dynamics/report/page.html") as (template,):
        template.write_text(template.read_text() + "\n")
        assert project.planned(targets=TARGETS) == {"index"}
