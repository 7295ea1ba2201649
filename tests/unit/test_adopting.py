"""What `ptq-dynamics adopt` unpacks, and that it leaves nothing behind."""

import subprocess
import sys
import tarfile
from contextlib import chdir
from pathlib import Path

import pytest
from ptq_dynamics.provenance.adopting import unpacked
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


def test_an_interrupted_one_leaves_nothing_behind(released):
    words = [sys.executable, "-c", WAIT, str(released)]
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
