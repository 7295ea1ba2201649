"""The kit for GPU machines, tried here: packed, unpacked elsewhere, cut off, and brought back."""

import os
import shutil
import subprocess
import sys

import pytest
from ptq_dynamics.engine import manifest, record
from support import ROOT

pytestmark = pytest.mark.slow


def run(command, folder, **environment):
    how = {"cwd": folder, "capture_output": True, "text": True, "check": True}
    return subprocess.run(command, env={**os.environ, **environment}, **how).stdout


def test_what_a_kit_builds_comes_back_with_its_commit(tmp_path):
    here = tmp_path / "a checkout"
    run(["git", "clone", "-q", "--depth=1", f"file://{ROOT}", here], tmp_path)
    place, out = tmp_path / "another machine", tmp_path / "out"
    place.mkdir()
    run([sys.executable, "tests/gpu/pack.py", "--parts", "source"], here)
    kit = ["--scale", "smoke", "--no-packages", "--seconds", "35", "--build", "fig04"]
    # The packages of this environment are those of the image.
    said = run(
        [sys.executable, here / ".gpu/run.py", *kit], tmp_path, TMPDIR=str(place), OUT=str(out)
    )
    assert "the smoke test passes" in said, said
    shutil.rmtree(place)
    parts = sorted(out.glob("results-*.tar.xz"))
    said = run([sys.executable, "tests/gpu/collect.py", *parts], here)
    places = [*here.glob("results/smoke/*/**/record.json")]
    assert places and said.startswith(f"{len(places)} new results"), said
    head = run(["git", "rev-parse", "HEAD"], ROOT).strip()
    assert {record.read(place).git.commit for place in places} == {head}
    trained = here / "results/smoke/train/constant-3e-3/seed-201/manifest.json"
    result = manifest.read(trained)
    assert result.dropped() == {n for n in result.files if "/" in n or n.startswith("state-")}
    assert result.harm() is None
