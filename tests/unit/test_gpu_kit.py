"""The kit for GPU machines, tried here: packed, unpacked elsewhere, cut off, and brought back."""

import os
import shutil
import subprocess
import sys
from glob import glob

import pytest
from ptq_dynamics.engine import manifest, record
from support import ROOT, wait_until

pytestmark = pytest.mark.slow


def run(command, folder):
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def records(folder):
    """The records of training and measuring below a folder, without those of work in progress."""
    places = glob("results/smoke/*/*/**/record.json", root_dir=folder, recursive=True)
    return {place for place in places if "/corpus/" not in place}


def test_what_a_kit_builds_comes_back_with_its_commit(tmp_path):
    here = tmp_path / "a checkout"
    run(["git", "clone", "-q", "--depth=1", f"file://{ROOT}", here], tmp_path)
    place, out, log = (tmp_path / name for name in ("another machine", "out", "run.log"))
    place.mkdir()
    corpus = ["--scale", "smoke", "--figures", "fig04", "--parts", "source", "results"]
    run([sys.executable, "tests/gpu/pack.py", *corpus], here)
    # The packages of this environment are those of the image.
    kit = [sys.executable, here / ".gpu/run.py", "--scale", "smoke", "--no-packages"]
    with log.open("w") as file:
        how = {"env": {**os.environ, "TMPDIR": str(place), "OUT": str(out)}, "stdout": file}
        build = subprocess.Popen([*kit, "--build", "fig04"], stderr=file, **how)
    made = place / "ptq-dynamics-gpu/source"
    ends = "results/smoke/train/*/*/manifest.json"
    wait_until(lambda: any(made.glob(ends)) or build.poll() is not None, "no run ends", 600)
    build.terminate()
    build.wait(60)
    assert log.read_text().endswith("ended by a signal\n"), log.read_text()
    finished = records(made)
    shutil.rmtree(place)
    run([sys.executable, "tests/gpu/collect.py", *sorted(out.glob("results-*.tar.xz"))], here)
    assert finished and records(here) == finished
    head = run(["git", "rev-parse", "HEAD"], ROOT).strip()
    assert {record.read(here / place).git.commit for place in finished} == {head}
    result = manifest.read(here / "results/smoke/train/constant-3e-3/seed-201/manifest.json")
    assert result.dropped() == {n for n in result.files if "/" in n or n.startswith("state-")}
    assert result.harm() is None
