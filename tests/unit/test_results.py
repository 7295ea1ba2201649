"""What commands tell of recorded results: status, comparisons with others, and releases."""

import random
import tarfile
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.cli import chosen
from ptq_dynamics.engine import manifest, record
from ptq_dynamics.engine.paths import Paths
from ptq_dynamics.engine.record import Acceptance
from ptq_dynamics.measure import measurements
from ptq_dynamics.provenance.archive import CHANGES, RELEASE
from ptq_dynamics.provenance.comparison import compare, parting
from ptq_dynamics.provenance.released import pack, seeds_in, unpacked
from ptq_dynamics.provenance.state import find
from recorded import LOSSES, RUN, build, write
from support import ROOT, plan

# Comparison

NAN = float("nan")
RELEASED = ROOT / "results/reference/laptop/measurements.csv"


def table(folder, change=None):
    """A folder with the released table of scale laptop, in part, changed."""
    frame = measurements.read_table(RELEASED).head(50)
    if change is not None:
        frame = change(frame)
    folder.mkdir(parents=True)
    frame.to_csv(folder / "measurements.csv", index=False)
    return folder


def moved(by):
    """The first measurement, moved by so many of its standard errors."""

    def change(frame):
        frame.loc[0, "value"] += by * frame.loc[0, "stderr"]
        return frame

    return change


@pytest.mark.parametrize(
    ("change", "verdicts"),
    [
        (None, {"equal": 50}),
        # Of two such errors: 2√2 = 2.83.
        (moved(2.7), {"equal": 49, "within tolerance": 1}),
        (moved(-2.9), {"equal": 49, "different": 1}),
        (lambda frame: frame.drop(index=3), {"equal": 49, "only in one": 1}),
        (lambda frame: frame.assign(value=NAN), {"different": 50}),
        (lambda frame: moved(1)(frame).assign(stderr=NAN), {"equal": 49, "not judged": 1}),
    ],
)
def test_tables_are_compared_value_by_value(tmp_path, change, verdicts):
    one, other = table(tmp_path / "a"), table(tmp_path / "b", change)
    for found in (compare(one, other), compare(other, one)):
        assert found.verdict.value_counts().to_dict() == verdicts


def test_builds_part_at_the_first_job_that_differs(tmp_path):
    for name, rate in (("one", 0.003), ("other", 0.005)):
        (tmp_path / name).mkdir()
        with chdir(tmp_path / name):
            build(rate)
            Path("results/smoke/measurements.csv").write_text("value\n")
    one, other = (tmp_path / name / "results/smoke" for name in ("one", "other"))
    assert f"{RUN}/manifest.json: schedule.peak_lr 0.005 → 0.003" in parting(one, other)
    assert parting(one, one) is None
    with pytest.raises(Problem, match="is no table of measurements"):
        compare(one, other)
    assert "has no records of jobs" in parting(table(tmp_path / "a"), one)


def test_builds_part_where_the_arithmetic_of_their_machines_does(tmp_path):
    folders = []
    for rate, capability in ((0.003, "AVX512"), (0.005, "AVX2"), (0.004, None)):
        folders.append(tmp_path / str(rate) / "results/smoke")
        (tmp_path / str(rate)).mkdir()
        with chdir(tmp_path / str(rate)):
            build(rate)
        path = folders[-1] / "train/a/seed-1/record.json"
        made, variables = record.read(path), capability and {"MKL_CBWR": capability}
        machine = replace(made.machine, capability=capability, variables=variables)
        same = {**made.job, "settings": {}}
        path.write_text(replace(made, job=same, machine=machine).text())
    one, other, old = folders
    words = "capability AVX2 → AVX512; variables.MKL_CBWR AVX2 → AVX512"
    assert parting(one, other).endswith(words)
    assert parting(one, old).endswith("the machine or nondeterminism differs")


# Releases


def test_the_seeds_of_a_release_are_those_that_it_holds(tmp_path):
    config = plan("laptop", ROOT / "config").site.config
    assert seeds_in(tmp_path, config) == ""
    for seed in config.scale.release_seeds:
        folder = tmp_path / f"results/laptop/train/a/seed-{seed}"
        folder.mkdir(parents=True)
        (folder / "record.json").touch()
    assert seeds_in(tmp_path, config) == "202 203"


def content(place):
    with tarfile.open(place) as archive:
        return {entry.name for entry in archive if entry.isfile()}


def test_a_later_release_leaves_an_archive_and_adds_what_differs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    released = tmp_path / "released"
    released.mkdir()

    def built(facts=None, seed=1):
        losses = random.Random(seed).randbytes(20_000)
        results = [
            write(RUN, "train.train", {"curve.csv": b"1", "model.bin": b"weights"}, facts=facts),
            write(LOSSES, "measure.measure", {"losses.safetensors": losses}),
        ]
        return [SimpleNamespace(paths=Paths.of(result.job)) for result in results]

    # As earlier releases, which had manifests, too.
    built()
    with tarfile.open(released / RELEASE, "w:xz") as archive:
        archive.add("results", filter=lambda e: None if e.name.endswith("model.bin") else e)
    first = (released / RELEASE).read_bytes()
    assert pack(built({"new": 1}), released) == released / CHANGES
    assert content(released / CHANGES) == {f"{RUN}/record.json"}
    assert (released / RELEASE).read_bytes() == first
    for place in (released, released / RELEASE, released / CHANGES):
        with unpacked(place) as folder:
            for result in (RUN, LOSSES):
                text = Path(result, "record.json").read_text()
                assert (folder / result / "record.json").read_text() == text
                found = manifest.read(folder / result / "manifest.json")
                assert found.text() == Path(result, "manifest.json").read_text()
                assert found.harm(deep=True) is None
                assert found.dropped() == found.files.keys() & {"model.bin"}
    # Where most bytes differ, the archive is written again, with nothing twice.
    assert pack(built(seed=2), released) == released / RELEASE
    records = {f"{result}/record.json" for result in (RUN, LOSSES)}
    every = {*records, f"{RUN}/curve.csv", f"{LOSSES}/losses.safetensors"}
    assert content(released / RELEASE) == every
    # Without changes, nothing is written; a damaged archive is written again.
    (released / CHANGES).unlink()
    whole = (released / RELEASE).read_bytes()
    assert pack(built(seed=2), released) == released / RELEASE
    assert not (released / CHANGES).exists()
    (released / RELEASE).write_bytes(whole[:500])
    assert pack(built(seed=2), released) == released / RELEASE
    assert content(released / RELEASE) == every


# Status

FIG04 = "status --scale smoke --figures fig04"
ACCEPTED = (Acceptance("words " * 40, "2026-01-01T00:00:00+00:00", (), "0" * 64),)
NOTHING = 'results is built at scale smoke yet; run make all SCALE=smoke FIGURES="fig04"; '


def test_status_answers_first_and_names_scales_and_seeds_with_results(
    tmp_path, monkeypatch, command
):
    (tmp_path / "config").symlink_to(ROOT / "config")
    monkeypatch.chdir(tmp_path)
    write("results/laptop/corpus/main", "corpus.embedded", {})
    status, printed, _ = command(f"{FIG04} --also claims")
    assert status == 1 and printed.count("\n") == 1
    assert printed.endswith(f"{NOTHING}scales with results here: laptop\n")
    seeds = "--more-seeds '202 203'"
    plan = chosen.plan(scale="smoke", figures="fig04", more_seeds="202 203")
    findings = find(plan, plan.targets())
    for job in (plan.site.made[finding.manifest] for finding in findings):
        made = write(job.folder, job.stage, {}, stem=job.stem)
        digests = {path: manifest.read(Path(path)).digest() for path in job.needs}
        made = replace(made, job=job.spec, inputs=digests, accepted=ACCEPTED)
        job.paths.record.write_text(made.text())
    status, printed, _ = command(f"{FIG04} {seeds}")
    answer, note = printed.splitlines()
    assert status == 0 and answer == f"all {len(findings)} results are up to date; nothing to do"
    assert note == f"note: {len(findings)} results are accepted; --json has the reasons"
    # The figure has seeds that are not chosen here, and are there.
    for more in ("", "--more-seeds 203"):
        status, printed, _ = command(f"{FIG04} {more}")
        first, outdated, *_ = printed.splitlines()
        assert status == 1 and first.startswith("1 outdated, ")
        assert "draw fig04" in outdated and "seeds 201, 202, 203 → 201" in outdated
        assert f"results of more seeds are here: {seeds} includes them\n" in printed
