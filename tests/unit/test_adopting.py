"""What `ptq-dynamics adopt` unpacks, and of which seeds."""

import random
import tarfile
from pathlib import Path
from types import SimpleNamespace

from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.paths import Paths
from ptq_dynamics.provenance.archive import CHANGES, RELEASE
from ptq_dynamics.provenance.released import pack, seeds_in, unpacked
from recorded import LOSSES, RUN, write
from support import ROOT, plan


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
