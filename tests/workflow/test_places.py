"""Unusual places: odd characters in paths, no git, a read-only home, another working directory."""

import json
import os
import re
import shutil
import sys
from pathlib import Path
from subprocess import run

from project import SNAKEMAKE, Project
from support import ROOT, artifacts, differing, edit_yaml

CORPUS = "results/smoke/corpus/main"
FIGURES = ["figures/smoke/fig04.csv", "figures/smoke/fig04.png"]
# Nobody can make folders there, not even root.
HOME = {"HOME": "/proc/none", "XDG_CACHE_HOME": ""}


def environment(project):
    found = {**project.without_path(), **HOME}
    return {name: value for name, value in found.items() if value}


def make(project):
    """`make figures` for figure 4, in the environment that is installed here."""
    installed = Path(sys.executable).parents[1]
    command = ["make", f"VENV={installed}", f"INSTALLED={installed}", "figures"]
    return run(
        [*command, "SCALE=smoke", "FIGURES=fig04"],
        cwd=project.folder,
        env=environment(project),
        capture_output=True,
        text=True,
        check=False,
    )


def test_make_builds_in_a_folder_with_spaces_without_git_and_home(built, tmp_path):
    """Of all figures of scale smoke one is drawn anew."""
    project = Project.copy(tmp_path / "it's a cöpy")
    shutil.copy2(ROOT / "Makefile", project.folder)
    for name in ("results", "figures", ".snakemake"):
        shutil.copytree(built.folder / name, project.folder / name)
    (project.folder / "figures/smoke/fig04.manifest.json").unlink()
    (project.folder / "figures/smoke/fig04.csv").unlink()
    done = make(project)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    for name in FIGURES:
        assert (project.folder / name).read_bytes() == (built.folder / name).read_bytes()
    record = json.loads((project.folder / "figures/smoke/fig04.record.json").read_text())
    assert record["git"] is None
    assert (project.folder / ".snakemake/cache").is_dir()
    again = make(project)
    # Under another make there are lines on folders around it.
    assert again.returncode == 0 and "; nothing to do" in again.stdout, again.stdout
    assert "Building DAG" not in again.stdout + again.stderr
    page = project.folder / "figures/smoke/README.md"
    assert "Another caption." not in page.read_text()
    figures = project.folder / "config/figures.yaml"
    edit_yaml(figures, lambda found: found["fig04"].update(caption="Another caption."))
    captioned = make(project)
    assert "; nothing to do" in captioned.stdout, captioned.stdout
    assert "Another caption." in page.read_text()


def test_a_build_from_another_folder_with_spaces(built, tmp_path):
    project, folder = Project.copy(tmp_path / "a copy"), tmp_path / "else where"
    folder.mkdir()
    command = [SNAKEMAKE, "-s", str(project.folder / "Snakefile"), "-d", str(folder), "-c1"]
    done = run(
        [*command, "--config", "scale=smoke", "--", f"{CORPUS}/manifest.json"],
        cwd=tmp_path,
        env={**environment(project), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert not differing(artifacts(built.folder / CORPUS), artifacts(folder / CORPUS))
    assert not (project.folder / "results").exists()
    assert os.listdir(tmp_path / "cache")


def test_a_folder_with_braces_is_one_line(tmp_path):
    project = Project.copy(tmp_path / "a {copy} of it")
    done = project.snakemake("-n")
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert "has braces, which Snakemake takes for wildcards; move it" in said
    assert "Traceback" not in said


def test_only_another_lock_installs_anything(tmp_path):
    for name in ("Makefile", "pyproject.toml", "envs/main.txt", "envs/cuda.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    lock = tmp_path / "envs/main.txt"

    def say(*arguments):
        command = ["make", "--no-print-directory", *arguments]
        return run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    def would_install():
        return "installing the locked environment" in say("-n", "lint")

    assert would_install()
    stamp = tmp_path / say("--eval", "stamp: ; @echo $(INSTALLED)", "stamp").strip()
    stamp.parent.mkdir()
    stamp.touch()
    assert not would_install()
    said = lock.read_text()
    # After the last digest of the first distribution: the lines before it go on.
    commented = re.sub(r"(--hash=\S+)$", r"\1  # why", said, count=1, flags=re.MULTILINE)
    assert commented != said
    lock.write_text(f"# A comment.\n{commented}\n")
    assert not would_install()
    lock.write_text(lock.read_text() + "another==1.0\n")
    assert would_install()
