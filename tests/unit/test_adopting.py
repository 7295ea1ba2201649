"""What `ptq-dynamics adopt` unpacks."""

import tarfile
from contextlib import chdir

import pytest
from ptq_dynamics.provenance.archive import RELEASE
from ptq_dynamics.provenance.released import unpacked


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
