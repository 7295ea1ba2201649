"""The paper through the real Snakemake: what it tells, and what renews it."""

import copy
import json
import re
import shutil

import pytest
from ptq_dynamics.paper.typeset import compiled, sources
from ptq_dynamics.paper.typeset import copy as copied
from ptq_dynamics.provenance.archive import identity_in

TARGETS = ("figures", "claims", "tables", "paper")
PAPER = "paper/smoke/paper.pdf"
DATA = "paper/smoke/data.json"
# Digits in prose that are no results: citations, names, what a formula has, and code.
ALLOWED = [
    r"arXiv \d{4}\.\d{5}",
    r"LLM\.int8|MXFP4",
    r"\$[^$]*\$",
    r"\b(len|last)\(\) ?[<>=+]+ ?\d+",
    r"\bat [<>=]+ \d+",
    r"\blevel: \d",
    r"\b(slice|min|columns|update)\(\d+(, \d+)?",
    r"\bwidth: \d+%",
    r"\b\d+(\.\d+)?(pt|em|cm|mm|fr)\b",
]


@pytest.fixture(scope="module")
def data(project):
    return json.loads((project.folder / DATA).read_text())


def typeset(project, folder, content):
    """The bytes of the paper with other data, in another folder."""
    copied(sources(project.folder), project.folder, folder)
    (folder / "data.json").write_text(json.dumps(content))
    for name in ("claims.json", "claims.pdf"):
        shutil.copy2(project.folder / "results/smoke" / name, folder)
    shutil.copytree(project.folder / "results/smoke/tables", folder / "tables")
    (folder / "figures").mkdir()
    for figure in project.chosen:
        shutil.copy2(project.folder / f"figures/smoke/{figure}.pdf", folder / "figures")
    return compiled(folder, 1_700_000_000)


def test_it_tells_what_records_hold_and_what_it_was_made_from(project, data):
    found, waiting = {}, [*data["inputs"].values()]
    while waiting:
        path = waiting.pop()
        if path not in found:
            place = project.folder / path.replace("manifest.json", "record.json")
            found[path] = json.loads(place.read_text())
            waiting += found[path]["inputs"]
    assert data["records"].keys() == found.keys() and data["unknown"] == 0
    for path, each in data["records"].items():
        assert each["cpu_seconds"] == found[path]["cpu_seconds"]
    assert identity_in(project.folder / PAPER) == ("smoke scale", data["identity"])
    assert project.planned(targets=TARGETS) == set()


def test_the_text_holds_at_other_facts(project, data, tmp_path):
    """Several seeds, public checkpoints, what is unknown, and what no section names."""
    other = copy.deepcopy(data)
    other["numbers"] |= {"scale.seed-count": 3, "scale.calibration-sets": 3}
    other["unknown"], other["scale"]["miniatures"] = 3, False
    for number, each in enumerate(other["records"].values()):
        each |= {"commit": [None, "a" * 40 + "+", "b" * 40][number % 3], "accepted": True}
    other["figures"]["mine"] = {**other["figures"]["fig04"], "missing": "it is not there"}
    assert typeset(project, tmp_path / "text", other).startswith(b"%PDF")


def test_an_edited_claim_renews_the_paper_and_trains_nothing(project):
    with project.edited("workflow/ptq_dynamics/claims/controlled.py") as (claims,):
        project.replace(claims, "rises as the learning rate decays", "rises in decay")
        assert project.planned(targets=TARGETS) == {"claims", "tables", "paper"}


def test_every_number_in_the_prose_comes_from_data(project, data):
    """What is in quotes is a key, the name of an entry, an address, or one of a few words."""
    known = {key for name in ("numbers", "figures", "tables") for key in data[name]}
    judged = json.loads((project.folder / "results/smoke/claims.json").read_text())["claims"]
    known |= {"0", "1", *(each["name"] for each in judged)}
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
