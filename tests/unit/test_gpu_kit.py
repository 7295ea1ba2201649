"""The kit for GPU machines, tried here: packed, unpacked elsewhere, cut off, and brought back."""

import os
import shutil
import subprocess
import sys

import pytest
from ptq_dynamics.engine import manifest, record
from support import ROOT, wait_until

pytestmark = pytest.mark.slow


def run(command, folder, **environment):
    how = {"cwd": folder, "capture_output": True, "text": True, "check": True}
    return subprocess.run(command, env={**os.environ, **environment}, **how).stdout


def records(folder):
    """The records of training and measuring below a folder, without those of work in progress."""
    places = {path.relative_to(folder) for path in folder.glob("results/smoke/*/*/**/record.json")}
    return {path for path in places if path.parts[2] != "corpus" and "/." not in str(path)}


def test_what_a_kit_builds_comes_back_with_its_commit(tmp_path):
    here = tmp_path / "a checkout"
    run(["git", "clone", "-q", "--depth=1", f"file://{ROOT}", here], tmp_path)
    place, out = tmp_path / "another machine", tmp_path / "out"
    place.mkdir()
    corpus = ["--scale", "smoke", "--figures", "fig04", "--parts", "source", "results"]
    run([sys.executable, "tests/gpu/pack.py", *corpus], here)
    # The packages of this environment are those of the image.
    kit = [sys.executable, here / ".gpu/run.py", "--scale", "smoke", "--no-packages"]
    environment = {**os.environ, "TMPDIR": str(place), "OUT": str(out)}
    log = tmp_path / "run.log"
    with log.open("w") as file:
        build = subprocess.Popen([*kit, "--build", "fig04"], env=environment, stdout=file)
    made = place / "ptq-dynamics-gpu/source"
    wait_until(lambda: [*made.glob("results/smoke/train/*/*/manifest.json")], "no run ends", 300)
    build.terminate()
    assert build.wait(60) == 1 and "the smoke test passes" in log.read_text(), log.read_text()
    finished = records(made)
    shutil.rmtree(place)
    run([sys.executable, "tests/gpu/collect.py", *sorted(out.glob("results-*.tar.xz"))], here)
    assert finished and records(here) == finished
    head = run(["git", "rev-parse", "HEAD"], ROOT).strip()
    assert {record.read(here / place).git.commit for place in finished} == {head}
    trained = here / "results/smoke/train/constant-3e-3/seed-201/manifest.json"
    result = manifest.read(trained)
    assert result.dropped() == {n for n in result.files if "/" in n or n.startswith("state-")}
    assert result.harm() is None
