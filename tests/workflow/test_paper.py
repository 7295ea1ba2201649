"""The paper through the real Snakemake and by its own verb: what it tells, and what renews it."""

import copy
import csv
import json
import re
import shutil
import sys
from contextlib import chdir
from dataclasses import replace

import pytest
from project import Project
from ptq_dynamics.engine import manifest
from ptq_dynamics.paper import sources
from ptq_dynamics.paper.typeset import compiled
from ptq_dynamics.provenance.archive import Archive, identity_in
from ptq_dynamics.provenance.remaking import remade
from support import edit_yaml
from tracer import Traces

TARGETS = ("figures", "claims", "tables", "paper")
PAPER = "paper/smoke/paper.pdf"
DATA = "paper/smoke/data.json"
FRONT, RESULTS = "paper/sections/front.typ", "paper/sections/results.typ"
# Rules that run no job of ours.
LOCAL = {"claims", "tables", "paper"}
# Digits in prose that are no results: citations, names, what a formula has, and code.
ALLOWED = [
    r"arXiv \d{4}\.\d{5}",
    r"LLM\.int8",
    r"\$[^$]*\$",
    r"\b(len|last)\(\) ?[<>=+]+ ?\d+",
    r"\bat [<>=]+ \d+",
    r"\blevel: \d",
    r"\b(slice|min|columns|update)\(\d+(, \d+)?",
    r"\bwidth: \d+%",
    r"\b\d+(\.\d+)?(pt|em|cm|mm|fr)\b",
]


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    return Traces(tmp_path_factory.mktemp("traces"))


@pytest.fixture(scope="module")
def project(built, tmp_path_factory, traces):
    """A copy of the built project, with its paper; traced."""
    copied = Project.copy(tmp_path_factory.mktemp("paper") / "project", figures=built.figures)
    for place in ("results", "figures"):
        shutil.copytree(built.folder / place, copied.folder / place, symlinks=True)
    tracing = replace(copied, environment=traces.environment(copied.folder / "workflow"))
    done = tracing.snakemake(targets=("paper",))
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    traces.collect()
    return copied


@pytest.fixture(scope="module")
def data(project):
    return json.loads((project.folder / DATA).read_text())


def typeset(project, folder, content):
    """The bytes of the paper with other data, in another folder."""
    sources.copy(sources.find(project.folder), project.folder, folder)
    (folder / "data.json").write_text(json.dumps(content))
    (folder / "figures").mkdir()
    for figure in project.chosen:
        shutil.copy2(project.folder / f"figures/smoke/{figure}.pdf", folder / "figures")
    return compiled(folder, 1_700_000_000)


def verb(project):
    command = [sys.executable, "-m", "ptq_dynamics.cli", "paper", "--scale", "smoke"]
    return project.process([*command, "--figures", project.figures])


def status(project):
    """State of every result of the paper, as the command has it."""
    choice = ["--scale", "smoke", "--figures", project.figures, "--paper", "--json"]
    done = project.process([sys.executable, "-m", "ptq_dynamics.cli", "status", *choice])
    return json.loads(done.stdout)


def refused(project):
    """The only line that the verb prints of what is wrong."""
    done = verb(project)
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 1 and len(lines) == 1, done.stdout + done.stderr
    return lines[0]


def test_every_function_that_it_enters_is_in_its_fingerprint(project, traces):
    assert "paper.typeset" in {stage for stage, _ in traces.entered}
    missed, _ = traces.missed(project.folder / "workflow")
    assert not missed


def test_nothing_is_due_twice(project):
    assert project.planned(targets=TARGETS) <= LOCAL
    before = (project.folder / PAPER).stat().st_mtime_ns
    done = verb(project)
    assert done.returncode == 0 and "is as it should be" in done.stdout, done.stderr
    assert (project.folder / PAPER).stat().st_mtime_ns == before


def test_numbers_of_claims_and_measurements_are_those_of_their_files(project, data):
    judged = json.loads((project.folder / "results/smoke/claims.json").read_text())["claims"]
    every = [one for each in judged for one in each["inequalities"]]
    numbers = data["numbers"]
    for verdict in ("reproduced", "not reproduced", "inconclusive", "not measured"):
        key = verdict.replace(" ", "-")
        assert numbers[f"claims.{key}"] == str(sum(e["verdict"] == verdict for e in judged))
        assert numbers[f"inequalities.{key}"] == str(sum(e["verdict"] == verdict for e in every))
    with (project.folder / "results/smoke/measurements.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert numbers["measured.values"] == f"{len(rows):,}"
    points = {(row["trajectory"], row["seed"], row["checkpoint_id"]) for row in rows}
    assert numbers["measured.checkpoints"] == f"{len(points):,}"
    assert numbers["figures.drawn"] == str(len(project.chosen))


def test_cells_are_those_of_the_tables(project, data):
    with (project.folder / "results/smoke/tables/headline.csv").open() as file:
        row = next(each for each in csv.DictReader(file) if each["Trajectory"] == "rainbow-172")
    table = data["tables"]["headline"]
    names = [", ".join(filter(None, reversed(head))) for head in table["heads"]]
    shown = next(dict(zip(names, r, strict=True)) for r in table["rows"] if "rainbow-172" in r)
    value, error = re.fullmatch(r"([\d.]+) ± ([\d.]+)", shown["Loss, end"]).groups()
    places = len(error.partition(".")[2])
    assert value == f"{float(row['Loss, end']):.{places}f}"
    assert error == f"{float(row['Loss, end (error)']):.{places}f}"


def test_what_it_tells_of_records_is_what_they_hold(project, data):
    found, waiting = {}, [each["manifest"] for each in data["records"].values()]
    while waiting:
        path = waiting.pop()
        if path not in found:
            place = project.folder / path.replace("manifest.json", "record.json")
            found[path] = json.loads(place.read_text())
            waiting += found[path]["inputs"]
    numbers = data["numbers"]
    assert numbers["records.all"] == f"{len(found):,}" and numbers["records.unknown"] == "0"
    hours = sum(each["cpu_seconds"] for each in found.values()) / 3600
    assert float(numbers["compute.core-hours"]) == pytest.approx(hours, rel=5e-3)
    trained = sum(each["tokens"] or 0 for each in found.values())
    assert data["costs"]["rows"][-1][:3] == ["all", f"{len(found):,}", f"{trained:,}"]
    assert data["newest"][:16] >= max(each["started"] for each in found.values())[:16].replace(
        "T", " "
    )
    assert sum(count for _, count in data["commits"]) == len(found)
    for key, each in data["records"].items():
        account = project.folder / each["manifest"].replace("manifest.json", "record.json")
        assert account.is_file() and len(each["stamp"]) == 8, key


def test_the_lone_pdf_tells_what_it_was_made_from(project, data):
    assert identity_in(project.folder / PAPER) == ("smoke scale", data["identity"])


def test_the_same_inputs_give_the_same_bytes(project, data, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", project.variables()["PYTHONPATH"])
    made = [typeset(project, tmp_path / name, data) for name in ("one", "another place")]
    assert made[0] == made[1] and str(tmp_path).encode() not in made[0]
    with chdir(project.folder):
        found = Archive.of_scale("smoke").results
        own = [each for each in found.values() if each.record.job["stage"] == "paper.typeset"]
        assert len(own) == 1 and list(remade(own, at_once=1)) == []


def test_the_text_holds_at_other_facts(project, data, tmp_path):
    """Several seeds and commits, public checkpoints, what is unknown, and what no section names."""
    other = copy.deepcopy(data)
    for key in ("scale.seed-count", "scale.calibration-sets", "records.unknown", "records.dirty"):
        other["numbers"][key] = "3"
    other["numbers"] |= {"records.without-commit": "2", "records.accepted": "2"}
    other["scale"]["miniatures"] = False
    other["commits"] = [["a" * 40 + "+", 5], ["b" * 40, 3], ["no repository", 2]]
    other["claims"]["smollm3"]["about"] = ["SmolLM3-3B"]
    other["claims"]["mine"] = other["claims"]["rise-in-decay"]
    other["figures"]["mine"] = other["figures"]["fig04"]
    other["records"]["figure mine"] = other["records"]["figure fig04"]
    wide = other["tables"]["headline"]
    wide["heads"] += [["", f"task {number}"] for number in range(12)]
    wide["numeric"] += [True] * 12
    wide["rows"] = [[*row, *["25.0 ± 16.4"] * 12] for row in wide["rows"]]
    made = typeset(project, tmp_path / "text", other)
    # One page lies across.
    sizes = {
        tuple(map(float, box.split())) for box in re.findall(rb"/MediaBox ?\[([^\]]+)\]", made)
    }
    assert len(sizes) == 2


def test_an_edited_claim_renews_the_paper_and_trains_nothing(project):
    with project.edited("config/claims.yaml") as (claims,):
        edit_yaml(claims, lambda found: found["rise-in-decay"].update(says="Otherwise."))
        assert project.planned(targets=TARGETS) - LOCAL == {"judge", "tabulate", "typeset"}


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        (FRONT, "Every number", "Each number"),
        ("config/figures.yaml", "Constant learning rate 3e-3", "A constant learning rate 3e-3"),
    ],
)
def test_edits_of_text_and_captions_renew_the_paper_alone(project, name, old, new):
    with project.edited(name) as (path,):
        project.replace(path, old, new)
        found = status(project)
    stale = [each["manifest"] for each in found if each["state"] != "fresh"]
    assert stale == ["paper/smoke/manifest.json"]


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        (FRONT, 'num("claims.all")', 'num("claims.al")', ['"claims.al"', "claims.all meant?"]),
        (RESULTS, '#fig("fig04")', '#fig("fig99")', ['"fig99" is no key of figures']),
        (RESULTS, '#claim("kumar")', '#claim("kuma")', ['"kuma" is no key of claims']),
    ],
)
def test_a_wrong_key_stops_the_build_with_its_place(project, name, old, new, words):
    before = (project.folder / PAPER).read_bytes()
    with project.edited(name) as (path,):
        number = path.read_text().partition(old)[0].count("\n") + 1
        project.replace(path, old, new)
        line = refused(project)
    assert f"{name}:{number}: " in line
    assert [word for word in words if word not in line] == []
    assert (project.folder / PAPER).read_bytes() == before


def test_a_missing_figure_is_named(project):
    figure = "figures/smoke/fig04.pdf"
    with project.edited(figure) as (path,):
        path.unlink()
        line = refused(project)
    assert "figures/smoke/fig04.manifest.json" in line and "make figures SCALE=smoke" in line
    text = (project.folder / RESULTS).read_text()
    number = text.partition('#fig("fig04")')[0].count("\n") + 1
    assert f'{RESULTS}:{number} shows by #fig("fig04")' in line


def test_figures_that_were_not_chosen_are_said_to_be(data, project):
    others = [name for name in data["figures"] if name not in project.chosen]
    assert others
    for name in others:
        assert data["figures"][name]["missing"] == "it was not chosen for this build"
        assert data["figures"][name]["file"] is None


def test_every_number_in_the_prose_comes_from_data(project, data):
    """What is in quotes is a key, the name of an entry, an address, or one of a few words."""
    known = {key for name in ("numbers", "figures", "claims", "tables") for key in data[name]}
    known |= {"0", "1"}
    found = []
    for path in sorted((project.folder / "paper/sections").glob("*.typ")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            quoted = re.findall(r'"([^"]*)"', line)
            odd = [each for each in quoted if re.search(r"\d", each) and each not in known]
            odd = [each for each in odd if not each.startswith(("https://arxiv.org/abs/", "A."))]
            rest = re.sub(r'"[^"]*"', '""', line.partition("// ")[0])
            for allowed in ALLOWED:
                rest = re.sub(allowed, "", rest)
            found += [f"{path.name}:{number}: {each}" for each in odd]
            found += [f"{path.name}:{number}: {line}"] if re.search(r"\d", rest) else []
    assert not found


def test_the_result_lists_the_paper_and_its_data(project):
    found = manifest.read(project.folder / "paper/smoke/manifest.json")
    assert {*found.files} == {"paper.pdf", "data.json"}
    assert found.facts == {"figures": len(project.chosen)}
