"""RO-Crates of a build: what another tool makes of them."""

import json
import shutil

import pytest
from ptq_dynamics.base.content import sha256
from ptq_dynamics.engine import record
from rocrate.rocrate import ROCrate
from support import ROOT


def command(project, place):
    return project.ptq("dev", "crate", "--scale", "smoke", place)


@pytest.fixture(scope="module")
def project(project):
    """The built project with its documentation."""
    shutil.copytree(ROOT / "docs", project.folder / "docs")
    shutil.copy2(ROOT / "ARTIFACT.md", project.folder)
    return project


@pytest.fixture(scope="module")
def crate(project, tmp_path_factory):
    place = tmp_path_factory.mktemp("crates") / "smoke"
    done = command(project, place)
    assert done.returncode == 0, done.stderr
    return place


def several(value):
    return value if isinstance(value, list) else [value]


def test_another_tool_reads_what_ran(crate, project):
    found = ROCrate(crate)
    records = [
        record.read(path)
        for top in ("results", "figures", "paper")
        for path in (project.folder / top / "smoke").rglob("*record.json")
    ]
    actions = {each.id: each for each in found.get_by_type("CreateAction")}
    assert len(actions) == len(records) + 1 > 10
    for known in records:
        stem = f"{known.job['stem']}." if known.job["stem"] else ""
        action = actions[f"#run/{known.job['folder']}/{stem}manifest.json"]
        settings, *inputs = several(action["object"])
        assert {each.id for each in inputs} == {*known.inputs}
        assert json.loads(settings["value"]) == known.job["settings"]
        assert several(action["result"])[0]["sha256"] == sha256(project.folder / action.id[5:])
        assert action["startTime"][:19] == known.started[:19]
    names = {each.id for each in several(actions["#run"]["result"])}
    assert "figures/smoke/fig04.pdf" in names and found.mainEntity.id == "Snakefile"


def test_equal_results_give_equal_crates_and_damaged_ones_none(crate, project, tmp_path):
    assert command(project, tmp_path / "again.zip").returncode == 0
    shutil.unpack_archive(tmp_path / "again.zip", tmp_path / "again")
    for path in crate.rglob("*"):
        other = tmp_path / "again" / path.relative_to(crate)
        assert path.is_dir() or path.read_bytes() == other.read_bytes(), path
    assert "exists; remove it" in command(project, tmp_path).stderr
    with project.edited("figures/smoke/fig04.record.json") as (path,):
        path.write_bytes(b"{}")
        done = command(project, tmp_path / "new")
    assert done.returncode == 1 and "fig04.record.json" in done.stderr
    assert done.stderr.count("\n") == 1 and not (tmp_path / "new").exists()
