"""Weights that a scale does not keep: dropped after their last reader, made again on demand."""

import json
import random
from contextlib import chdir
from pathlib import Path

import pytest
from project import Project
from ptq_dynamics.engine import manifest, record
from ptq_dynamics.provenance.archive import Archive
from ptq_dynamics.provenance.audit import audit
from support import differing, edit_yaml, visible

KEEP = {"train": "measured", "average": "none", "quantize": "none"}


@pytest.fixture(scope="module")
def lean(tmp_path_factory):
    """A build of two figures that keeps the measured checkpoints of runs alone."""
    project = Project.copy(tmp_path_factory.mktemp("lean") / "project", figures="fig07")
    edit_yaml(project.folder / "config/scales/smoke.yaml", lambda found: found.update(keep=KEEP))
    project.build()
    return project


def tables(project: Project, names: list[str]) -> dict[str, bytes]:
    folder = project.folder / "figures/smoke"
    return {name: (folder / f"{name}.csv").read_bytes() for name in names}


def raw(project: Project) -> dict[str, bytes]:
    found = visible(project.folder / "results/smoke/evaluate")
    return {name: data for name, data in found.items() if name.endswith("losses.safetensors")}


def states(project: Project, kind: str) -> set[str]:
    folder = project.folder / "results/smoke" / kind
    return {manifest.read(path).state for path in folder.rglob("manifest.json")}


def weights(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*.safetensors")}


def test_what_is_measured_does_not_depend_on_what_is_kept(lean, built):
    assert not differing(tables(lean, ["fig07"]), tables(built, ["fig07"]))
    kept = raw(built)
    for name, data in raw(lean).items():
        assert kept[name] == data, name


def test_weights_go_after_their_last_reader_and_the_rest_stays(lean, built):
    assert states(lean, "quantize") == states(lean, "average") == {"absent"}
    assert not weights(lean.folder / "results/smoke/quantize")
    assert not weights(lean.folder / "results/smoke/average")
    run = "results/smoke/train/constant-3e-3/seed-101"
    measured = {point.id for point in lean.plan.site.timeline.measured("constant-3e-3")}
    left = weights(lean.folder / run)
    assert {name.partition("/")[0] for name in left} == measured
    assert left < weights(built.folder / run)
    assert not differing(
        {"curve.csv": (lean.folder / run / "curve.csv").read_bytes()},
        {"curve.csv": (built.folder / run / "curve.csv").read_bytes()},
    )


def test_nothing_is_left_to_do(lean):
    assert lean.stale() == set()


def test_an_audit_knows_what_was_dropped(lean):
    chance = random.Random(seed := random.SystemRandom().randrange(10**6))
    with chdir(lean.folder):
        assert audit(Archive.of_scale("smoke"), {}, ()).wrong == []
        notes = {path: path.read_bytes() for path in Path("results/smoke").rglob("absent.json")}
        assert len(notes) > 10
        try:
            for path, text in notes.items():
                content = bytearray(text)
                content[chance.randrange(len(content))] ^= 1 << chance.randrange(7)
                path.write_bytes(content)
            named = " ".join(audit(Archive.of_scale("smoke"), {}, ()).wrong)
        finally:
            for path, text in notes.items():
                path.write_bytes(text)
    missed = [path for path in notes if f"{path.parent}/" not in named]
    assert not missed, f"seed {seed}"


def test_a_new_figure_has_what_it_needs_made_again_and_no_other_reader_runs(lean, built):
    names = ("quantize", "evaluate", "average", "train")
    places = [lean.folder / "results/smoke" / name for name in names]
    manifests = [path for place in places for path in place.rglob("manifest.json")]
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in manifests}
    lean.figures = "fig07 interpolation"
    ran = {job.partition(":")[0] for job in lean.planned()}
    # The line from averaged to decayed weights: both its ends were made before.
    assert {"average", "quantize", "evaluate", "figure", "collect", "drop"} >= ran, ran
    assert {"average", "evaluate", "drop"} <= ran, ran
    assert not {job for job in lean.stale() if job.startswith("train")}
    lean.build()
    for path, (content, time) in before.items():
        assert path.read_bytes() == content, path
        assert path.stat().st_mtime_ns == time, path
    assert states(lean, "quantize") == states(lean, "average") == {"absent"}
    assert lean.stale() == set()
    lean.figures = "fig07"


def test_a_result_that_comes_out_different_is_one_line(lean):
    averaged = next((lean.folder / "results/smoke/average/lawa-20").rglob("manifest.json"))
    evaluated = lean.plan.losses.evaluate("lawa-20", "fp")
    account = averaged.with_name("record.json")
    text, told = averaged.read_text(), account.read_text()
    digest = manifest.read(averaged).digest()
    absent = averaged.with_name("absent.json")
    try:
        averaged.write_text(text.replace('"parameters": ', '"parameters": 1'))
        other = manifest.read(averaged).digest()
        # All agree, so that nothing seems to be damaged.
        absent.write_text(absent.read_text().replace(digest, other))
        account.write_text(record.sealed(json.loads(told.replace(digest, other))))
        done = lean.snakemake("--force", targets=(evaluated.manifest,))
        said = done.stdout + done.stderr
        assert done.returncode
        assert "came out different" in said, said[-2000:]
    finally:
        averaged.write_text(text)
        absent.write_text(absent.read_text().replace(other, digest))
        account.write_text(told)
