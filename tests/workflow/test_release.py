"""Releases: what is measured in one small archive, from which a clone draws every figure."""

import shutil
import sys
from contextlib import chdir

import pytest
from project import Project
from ptq_dynamics.engine import manifest
from ptq_dynamics.provenance.archive import DERIVED, RELEASE
from ptq_dynamics.provenance.released import SUMS, folders, pack
from support import git

RUN = "results/smoke/train/constant-3e-3/seed-201"
AUDIT = ("audit", "--scale", "smoke")


def command(project, *arguments):
    return project.ptq(*arguments, "--scale", "smoke", "--figures", project.figures)


@pytest.fixture(scope="module")
def archive(built, tmp_path_factory):
    folder = tmp_path_factory.mktemp("release")
    with chdir(built.folder):
        plan = built.plan
        jobs = [plan.figures.figure(name) for name in built.chosen]
        needed = sorted(plan.site.needed(jobs), key=lambda job: job.manifest)
        return pack([job for job in needed if not job.stage.startswith(DERIVED)], folder)


@pytest.fixture(scope="module")
def clone(built, archive, tmp_path_factory):
    """A checkout with nothing but the release."""
    project = Project.copy(tmp_path_factory.mktemp("clone") / "project", figures=built.figures)
    done = command(project, "adopt", archive)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 are missing or outdated in the source" in done.stdout, done.stdout
    return project


def test_a_clone_draws_figures_from_what_is_released(built, clone):
    said = clone.build()
    assert "train.train" not in said, said
    for name in built.chosen:
        for kind in ("pdf", "png", "csv"):
            path = f"figures/smoke/{name}.{kind}"
            assert (clone.folder / path).read_bytes() == (built.folder / path).read_bytes(), path
    assert not list((clone.folder / "results").rglob("model.safetensors"))


def test_what_is_not_released_is_made_again_where_it_is_asked_for(built, clone):
    assert manifest.read(clone.folder / RUN / "manifest.json").dropped()
    job = str(clone.folder / RUN / "record.json")
    done = clone.process([sys.executable, "-m", "ptq_dynamics.engine.run", job, "--restore"])
    assert done.returncode == 0, done.stderr
    for path in (built.folder / RUN).rglob("*.safetensors"):
        other = clone.folder / path.relative_to(built.folder)
        assert other.read_bytes() == path.read_bytes(), path


def test_right_files_that_are_here_stay_and_wrong_ones_go(built, archive, tmp_path):
    project = Project(shutil.copytree(built.folder, tmp_path / "project"), built.figures)
    tokens = project.folder / "results/smoke/corpus/main/train.bin"
    weights = sorted((project.folder / "results").rglob("*.safetensors"))
    tokens.write_bytes(tokens.read_bytes()[:-1])
    (project.folder / RUN / "curve.csv").unlink()
    done = command(project, "adopt", archive)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not tokens.exists() and (project.folder / RUN / "curve.csv").exists()
    assert weights == sorted((project.folder / "results").rglob("*.safetensors"))
    assert manifest.read(tokens.parent / "manifest.json").dropped() == {"train.bin"}


def test_what_differs_in_another_checkout_is_named_and_stays_away(built, tmp_path):
    other = Project.copy(tmp_path / "other", figures="fig04")
    config = other.folder / "config/quantizers.yaml"
    other.replace(config, "damping: 0.05", "damping: 0.06")
    done = command(other, "adopt", built.folder)
    assert done.returncode == 1 and "damping 0.05 → 0.06" in done.stdout, done.stdout
    assert not list(other.folder.glob("figures/smoke/*.pdf"))


def test_the_repository_keeps_what_is_read_of_a_scale(project):
    edits = {".zenodo.json": "has version 9, and", "README.md": "is no clean commit"}
    for name, words in edits.items():
        with project.edited(name) as (page,):
            page.write_text('{"version": "9"}')
            done = command(project, "release")
        assert done.returncode == 1 and words in done.stderr, done.stderr
    done = command(project, "release")
    assert done.returncode == 0 and "results, " in done.stdout, done.stderr
    with chdir(project.folder):
        results, pictures = folders("smoke")
        kept = {path.name for path in results.iterdir()}
        drawn = {path.name for path in pictures.iterdir()}
    assert drawn == {
        "README.md",
        "contact-sheet.png",
        *(f"{name}.{kind}" for name in project.chosen for kind in ("png", "csv", "record.json")),
    }
    assert kept >= {RELEASE, SUMS, "claims.json", "paper.pdf", "tables", "cost.md"}
    checked = project.process(["sha256sum", "-c", "--quiet", str(results / SUMS)])
    assert checked.returncode == 0, checked.stdout + checked.stderr
    traced = project.ptq("trace", pictures / "fig04.csv")
    assert traced.returncode == 0 and "matches its record" in traced.stdout


@pytest.fixture
def cloned(project, tmp_path):
    """Commit a README and clone the project, without its history unless the last commit is
    amended. With no more than what is released, an audit runs no job."""
    if not (project.folder / folders("smoke")[0] / SUMS).exists():
        assert command(project, "release").returncode == 0

    def clone(text, *options):
        (project.folder / "README.md").write_text(text)
        git(project.folder, "commit", "-qm", "B", *options, "README.md")
        found = Project(tmp_path / f"clone-{len(text)}")
        shallow = [] if options else ["--depth", "1"]
        git(tmp_path, "clone", "-q", *shallow, project.folder.as_uri(), found.folder)
        for place in folders("smoke"):
            shutil.copytree(project.folder / place, found.folder / place)
        return found

    return clone


def test_an_audit_names_commits_that_the_branch_lacks(project, cloned):
    """As after a rebase, or a squash."""
    text = (project.folder / "README.md").read_text()
    # Another commit of the same tree, but only records of this one may be released.
    said = cloned(text, "--amend").ptq(*AUDIT)
    assert said.returncode == 0 and said.stdout.endswith("all is well\n"), said.stdout + said.stderr
    done = command(project, "release")
    assert done.returncode == 1 and "no clean commit of this branch" in done.stderr, done.stderr
    said = cloned("Other words.", "--amend").ptq(*AUDIT)
    assert said.returncode == 1 and "names commit" in said.stdout, said.stdout + said.stderr
    assert said.stdout.endswith("remove the records and build again\n")


def test_an_audit_of_a_shallow_clone_counts_the_commits_that_it_cannot_know(cloned):
    said = cloned("A third version.").ptq(*AUDIT)
    assert said.returncode == 0, said.stdout + said.stderr
    last = said.stdout.splitlines()[-1]
    assert last.startswith("all else is well; commits of records that cannot be verified: 1 (")
    assert last.endswith("the history is shallow; run git fetch --unshallow)")
