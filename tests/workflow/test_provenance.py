"""Where results of a real build come from: status in words, an audit of every byte, a change that
is accepted, and nothing that names its user."""

import json
import math
import os
import random
import re
import shutil
import sys
from contextlib import chdir
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from urllib.parse import quote

import pandas as pd
import pytest
from project import TABLE, UNUSUAL
from ptq_dynamics.engine import manifest, record
from ptq_dynamics.measure import measurements
from ptq_dynamics.provenance.archive import Archive
from ptq_dynamics.provenance.audit import audit
from ptq_dynamics.provenance.trace import trace
from support import MAKE

PACKAGE = "workflow/ptq_dynamics"
FIGURE = "figures/smoke/fig04"
PAGES = [Path("figures/smoke", name) for name in ("README.md", "contact-sheet.png")]


def status(project):
    """The states of the results that are not up to date, by their manifests."""
    states = {result["manifest"]: result["state"] for result in project.status()}
    return {path: state for path, state in states.items() if state != "up to date"}


def test_make_ends_with_where_the_results_are(project):
    chosen = ["SCALE=smoke", f"FIGURES={project.figures}", f"VENV={Path(sys.prefix)}"]
    make = [*MAKE, *chosen]
    if project.process([*make, "-q", "install"]).returncode:
        pytest.skip("another lock is installed")
    done = project.process([*make, "claims"])
    ending = r"smoke scale: its numbers mean nothing\n(.*\n)+results/.* has all numbers\n"
    assert re.fullmatch(ending, done.stdout), done.stdout + done.stderr
    assert "Nothing to be done" in done.stderr
    with project.edited(f"{FIGURE}.record.json") as (path,):
        path.unlink()
        done = project.process([*make, "figures"])
    assert done.stdout.endswith("figures/smoke/README.md shows all figures\n"), done.stdout
    assert "Nothing to be done" not in done.stderr


def test_a_pdf_is_traced_down_to_the_text(project, tmp_path):
    lone = shutil.copy(project.folder / f"{FIGURE}.pdf", tmp_path / "mailed")
    done = project.ptq("trace", str(lone), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["top"] == f"{FIGURE}.manifest.json" and not found["missing"]
    leaves = [step["manifest"] for step in found["steps"] if not step["reads"]]
    assert leaves == ["results/smoke/corpus/main/manifest.json"]


def test_a_point_of_a_figure_is_traced_to_its_measurements(project):
    """Ten random points: each value comes out of the rows that are named, and of jobs of the same
    quantizer alone."""
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    with chdir(project.folder):
        table, archive = measurements.read_table(Path(TABLE)), Archive.here()
        for name in islice(cycle(listed(project)), 10):
            path = Path(f"figures/smoke/{name}.csv")
            points = pd.read_csv(path, dtype={"seeds": "string"})
            points = points[points.checkpoint_id.notna() & (points.metric != "chance")]
            number = chance.choice([*points.index])
            point, chain = points.loc[number], trace(f"{path}:{number + 1}", archive)
            rows, where = table.loc[[each - 1 for each in chain.rows]], f"{path}:{number} {seed}"
            counts = [len(point[of].split()) for of in ("seeds", "draws", "checkpoint_id")]
            assert len(rows) == math.prod(counts), where
            values = rows.value.abs() if point.metric.startswith("eigenvalue") else rows.value
            share = 100 if point.unit == "%" else 1
            assert point.y == pytest.approx(share * values.mean(), rel=1e-9, abs=1e-12), where
            assert {*rows.quantizer} == {*point.draws.split()} and {*rows.metric} == {point.metric}
            known = {each.split("/")[5] for each in chain.read if "/measure/" in each}
            assert known <= {*rows.quantizer, "fp"} and chain.read and not chain.missing, where
        done = project.ptq("trace", f"{FIGURE}.csv:1")
    assert done.returncode == 0 and f"{TABLE}:" in done.stdout, done.stderr
    assert len({*done.stdout.splitlines()}) == done.stdout.count("\n")
    with project.edited(TABLE) as (path,):
        path.unlink()
        done = project.ptq("trace", f"{FIGURE}.csv:1")
    assert f"{TABLE} is not built; make figures SCALE=smoke builds" in done.stdout, done.stderr


def listed(project):
    """The figures there that show what is in the table of measurements."""
    paths = (project.folder / "figures/smoke").glob("*.csv")
    return sorted(p.stem for p in paths if pd.read_csv(p).checkpoint_id.notna().any())


def test_an_audit_makes_figures_and_a_sample_again(project):
    """A table that was edited along with its record does not come out again."""
    table, account = (project.folder / f"{FIGURE}.{name}" for name in ("csv", "record.json"))
    with project.edited(*(f"{FIGURE}.{n}" for n in ("csv", "record.json", "manifest.json"))):
        table.write_text(table.read_text() + "a,b\n")
        forge(account)
        found = project.ptq("audit", "--scale", "smoke", "--rerun", "1")
    again = re.search(r"rebuilt (\d+) results; (\d+) are identical", found.stdout)
    assert again and int(again[1]) - 1 == int(again[2]) > len(project.chosen), found.stdout
    wrong = [line for line in found.stdout.splitlines() if line.startswith("wrong: ")]
    assert "it came out different in fig04.csv" in found.stderr, found.stderr
    assert wrong and all("fig04" in line for line in wrong), found.stdout
    remedy = "remove the first record, and run make all SCALE=smoke"
    assert found.stdout.splitlines()[-1].endswith(remedy), found.stdout


def forge(account):
    """Let a record and its manifest say that the files there were published."""
    known = record.read(account)
    there = manifest.describe(account.parent, account, {}).files
    made = replace(known, files={name: there[name] for name in known.files})
    account.write_text(made.text())
    path = account.with_name(account.name.replace("record", "manifest"))
    path.write_text(made.manifest(path).text())


def test_a_change_that_is_accepted_makes_nothing_again_and_is_told(project, tmp_path):
    copy = project.copied(tmp_path / "project")
    reason, code = "the same numbers as before", copy.folder / f"{PACKAGE}/figures/panels.py"
    copy.replace(code, "(min(sizes), max(sizes))", "[min(sizes), max(sizes)]")
    stale = status(copy)
    assert {*stale.values()} == {"outdated"}
    choice = ("--scale", "smoke", "--figures", copy.figures, "--reason", reason)
    done = copy.ptq("dev", "accept", "figures", *choice)
    assert done.returncode == 0 and "figures.panels changed" in done.stdout, done.stderr
    assert status(copy).keys() == {path for path in stale if not path.startswith("figures/")}
    told = copy.ptq("trace", f"{FIGURE}.pdf")
    assert told.returncode == 0 and f"accepted: {reason}" in told.stdout
    with chdir(copy.folder):
        found = audit(Archive.of_scale("smoke"), [*PAGES])
    assert found.wrong == [] and any(reason in note for note in found.notes)


def test_nothing_tells_of_user_machine_or_place(project):
    """No file of a build, made by an unusual user in an unusual place (conftest.py), names
    host, user or any absolute path; but for logs, which nobody releases."""
    names = [os.uname().nodename, UNUSUAL, json.dumps(UNUSUAL)[1:-1], quote(UNUSUAL), "/tmp/"]
    # Shorter ones stand in any weights.
    words = [name.encode() for name in names if len(name) > 4]
    seen = 0
    for top in ("results", "figures"):
        for path in (project.folder / top).rglob("*"):
            if path.is_file() and not any(part.startswith(".") for part in path.parts):
                content, seen = path.read_bytes(), seen + 1
                assert not [word for word in words if word in content], path
    assert seen > 100
