"""What `ptq-dynamics adopt` unpacks, and of which seeds."""

import tarfile
from contextlib import chdir

import pytest
from ptq_dynamics.provenance.archive import RELEASE
from ptq_dynamics.provenance.released import seeds_in, unpacked
from support import ROOT, plan


@pytest.fixture
def released(tmp_path):
    """A folder with a release of scale smoke."""
    (tmp_path / "packed/results/smoke").mkdir(parents=True)
    with tarfile.open(tmp_path / RELEASE, "w:xz") as archive:
        archive.add(tmp_path / "packed/results", "results")
    with chdir(tmp_path):
        yield tmp_path


def test_a_release_is_found_in_its_folder_and_a_checkout_is_itself(released):
    for place in (released, released / RELEASE):
        with unpacked(place) as folder:
            assert folder != place and (folder / "results/smoke").is_dir()
    with unpacked(released / "packed") as folder:
        assert folder == released / "packed"


def test_the_seeds_of_a_release_are_those_that_it_holds(tmp_path):
    config = plan("laptop", ROOT / "config").site.config
    assert seeds_in(tmp_path, config) == ""
    for seed in config.scale.release_seeds:
        folder = tmp_path / f"results/laptop/train/a/seed-{seed}"
        folder.mkdir(parents=True)
        (folder / "record.json").touch()
    assert seeds_in(tmp_path, config) == "202 203"
