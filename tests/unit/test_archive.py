"""Chains, audits, costs and released lists over a small build that was written by hand."""

import os
import random
import shutil
import tarfile
from contextlib import chdir
from pathlib import Path

import pytest
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import record
from ptq_dynamics.provenance import costs
from ptq_dynamics.provenance.archive import RELEASE, Archive, identity_in
from ptq_dynamics.provenance.audit import audit
from ptq_dynamics.provenance.trace import trace
from recorded import LOSSES, RUN, build, write

pytestmark = pytest.mark.slow

FIGURE = "figures/smoke/fig04"
CORPUS = "results/smoke/corpus/main/manifest.json"


@pytest.fixture
def here(tmp_path):
    with chdir(tmp_path):
        build()
        yield tmp_path


def wrong():
    found = audit(Archive.of_scale("smoke"))
    return found.wrong + found.effects


def test_a_lone_picture_is_traced_down_to_the_text(here, tmp_path_factory):
    lone = tmp_path_factory.mktemp("mail") / "mailed"
    shutil.copy(f"{FIGURE}.png", lone)
    for path in (f"{FIGURE}.png", f"{FIGURE}.csv", str(lone), f"{FIGURE}.record.json"):
        chain = trace(path, Archive.here())
        assert chain.is_verified and not chain.missing
        below = [f"{LOSSES}/manifest.json", f"{RUN}/manifest.json", CORPUS]
        assert [each.path for _, each, _ in chain.lines()] == [f"{FIGURE}.manifest.json", *below]
    lone.write_bytes(lone.read_bytes() + b".")
    assert not trace(str(lone), Archive.here()).is_verified
    shutil.copy("figures/smoke/fig06.png", f"{FIGURE}.png")
    assert trace(f"{FIGURE}.png", Archive.here()).top.record.job["name"] == "fig06"
    lone.write_bytes(b"\x89PNG")
    assert identity_in(lone) is None


def test_what_is_not_known_is_one_line(here):
    Path("stray.csv").write_text("a\n1\n")
    write("results/smoke/other", "a.b", {"a.csv": b"a\n1\n"})
    Path("results/smoke/corpus/main/record.json").write_text("{}")
    Path("lone.png").write_bytes(Path(f"{FIGURE}.png").read_bytes())
    Path(f"{FIGURE}.record.json").unlink()
    for path, words in (
        ("nowhere", "does not exist"),
        ("stray.csv", "to no result of this checkout"),
        ("results/smoke/other/a.csv:1", "has no row 1 with measurements"),
        ("results/smoke/corpus/main/train.bin", r"main/record\.json is no record"),
        ("lone.png", "which matches no local record"),
    ):
        with pytest.raises(Problem, match=words):
            trace(path, Archive.here())


def test_an_input_that_is_gone_is_missing_and_found_in_a_release(here):
    place = Path("results/reference/smoke", RELEASE)
    place.parent.mkdir(parents=True)
    with tarfile.open(place, "w:xz") as archive:
        archive.add(RUN)
    shutil.rmtree(RUN)
    assert trace(f"{FIGURE}.csv", Archive([])).missing == (f"{RUN}/manifest.json",)
    assert not trace(f"{FIGURE}.csv", Archive.here()).missing
    place.write_bytes(place.read_bytes()[:100])
    found = Archive.here()
    assert found.results and "is not an archive" in found.damaged[0]


def test_every_byte_counts(here):
    """One byte of every file is changed, each in its turn, and is named."""
    before = audit(Archive.of_scale("smoke"))
    assert before.wrong == [] and (before.results, before.files) == (5, 7)
    chance = random.Random(seed := random.SystemRandom().randrange(10**6))
    files = [each for top in ("results", "figures") for each in Path(top).rglob("*.*")]
    assert len(files) == 17
    for path in files:
        content = path.read_bytes()
        harmed = bytearray(content)
        harmed[chance.randrange(len(harmed))] ^= 1 << chance.randrange(8)
        path.write_bytes(harmed)
        assert str(path) in " ".join(wrong()).split(), f"seed {seed}"
        path.write_bytes(content)


def test_an_audit_names_what_is_missing_strange_or_of_another_input(here):
    Path(RUN, "model.bin").unlink()
    Path("results/smoke/stray").touch()
    Path("results/smoke/.log").touch()
    write("results/smoke/corpus/main", "corpus.embedded", {"train.bin": b"other"})
    assert {*wrong()} == {
        f"{RUN}/model.bin is missing",
        f"{RUN}/manifest.json was made from another version of {CORPUS}",
        "results/smoke/stray belongs to no result; remove it",
    }
    Path("results/smoke/corpus/main/record.json").unlink()
    damage, *_, effect = [line for line in wrong() if RUN in line]
    assert damage == f"{RUN}/model.bin is missing" and CORPUS in effect
    Path(RUN, "record.json").write_text("{}")
    assert wrong()[0].startswith(f"{RUN}/record.json is no record")
    shutil.rmtree(RUN)
    line = f"{LOSSES}/manifest.json was made from {RUN}/manifest.json, which has no record"
    assert line in wrong()


def test_dropped_files_are_known(here):
    made = record.read(Path(RUN, "record.json")).manifest(Path(RUN, "manifest.json"))
    made.drop(["model.bin"])
    found = audit(Archive.of_scale("smoke"))
    assert found.wrong == [] and found.absent == 1


def test_costs_are_summed_by_kind(here):
    rows = costs.write_costs("smoke", Path()).rows
    # Each job took 2.5 s, of which the processor computed 2.
    figures, *_, total = rows
    assert figures == ["figures", 2, 0, "0.0014", "0.0011", "0.0000"]
    assert total == ["all", 5, 0, "0.0035", "0.0028", "0.0000"] and len(rows) == 5
    assert {path.name for path in costs.paths(Path())} <= {*os.listdir()}
