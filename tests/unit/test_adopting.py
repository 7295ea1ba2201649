"""What `ptq-dynamics adopt` takes for a checkout, and what it leaves behind."""

import subprocess
import sys
import tarfile
from contextlib import chdir
from pathlib import Path

import pytest
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.provenance.adopting import _root, unpacked
from ptq_dynamics.provenance.archive import RELEASE
from support import ROOT

WAIT = """
import sys, time
from pathlib import Path
from ptq_dynamics.engine import signals
from ptq_dynamics.provenance.adopting import unpacked
signals.leave_at_once("error: interrupted")
with unpacked(Path(sys.argv[1])):
    print("unpacked", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def checkout(tmp_path):
    """A checkout with results of scale laptop, and a release of scale smoke in it."""
    (tmp_path / "results/laptop").mkdir(parents=True)
    place = tmp_path / "results/reference/smoke"
    place.mkdir(parents=True)
    (tmp_path / "packed/results/smoke").mkdir(parents=True)
    with tarfile.open(place / RELEASE, "w:xz") as archive:
        archive.add(tmp_path / "packed/results", "results")
    with chdir(tmp_path):
        yield place


def test_a_release_of_another_scale_is_not_taken_for_this_checkout(checkout):
    for place in (checkout, checkout / RELEASE):
        with unpacked(place) as folder:
            assert _root(folder, Path("results/smoke")) == folder.resolve()
            with pytest.raises(Problem, match=r"has no results/laptop; .*--scale"):
                _root(folder, Path("results/laptop"))


def test_a_checkout_is_found_by_its_folders_and_this_one_is_refused(checkout):
    packed = Path("packed").resolve()
    for place in ("", "results", "results/smoke"):
        assert _root(packed / place, Path("results/smoke")) == packed
    for place in (".", "results", "results/laptop"):
        with pytest.raises(Problem, match="is this checkout"):
            _root(Path(place), Path("results/laptop"))


def test_an_interrupted_one_leaves_nothing_behind(checkout):
    words = [sys.executable, "-c", WAIT, str(checkout)]
    env = {"PYTHONPATH": str(ROOT / "workflow")}
    with subprocess.Popen(
        words, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == "unpacked\n"
        assert len(list(Path().glob("ptq-dynamics-adopt-*"))) == 1
        process.terminate()
        assert process.stderr.read() == "error: interrupted\n"
        assert process.wait(10) == 1
    assert not list(Path().glob("ptq-dynamics-adopt-*"))
