"""Releases: what is measured in one small archive, from which a clone draws every figure."""

import json
import re
import shutil
import sys
from dataclasses import replace

import pytest
from project import SHOWN, TABLE, Project
from ptq_dynamics.engine import manifest
from ptq_dynamics.provenance.packed import RELEASE
from ptq_dynamics.provenance.sums import SUMS
from support import ROOT

RUN = "results/smoke/train/constant-3e-3/seed-101"


def command(project, *arguments):
    choice = ["--scale", "smoke"]
    if arguments[0] in ("release", "adopt"):
        choice += ["--figures", project.figures]
    verb = [sys.executable, "-m", "ptq_dynamics.cli", arguments[0], *choice]
    return project.process([*verb, *map(str, arguments[1:])])


@pytest.fixture(scope="module")
def archive(built, tmp_path_factory):
    folder = tmp_path_factory.mktemp("release")
    done = command(built, "release", folder)
    assert done.returncode == 0, done.stderr
    print(SHOWN + done.stdout.rpartition("/")[2].strip())
    return folder / RELEASE


@pytest.fixture(scope="module")
def clone(built, archive, tmp_path_factory):
    """A checkout with nothing but the release."""
    project = Project.copy(tmp_path_factory.mktemp("clone") / "project", figures=built.figures)
    place = project.folder / "results/reference/smoke"
    place.mkdir(parents=True)
    shutil.copy2(archive, place)
    done = command(project, "adopt", "results/reference/smoke")
    assert "results were taken over, 0 were here already, 0 are not" in done.stdout, done.stderr
    assert done.returncode == 0 and "make figures SCALE=smoke draws" in done.stdout, done.stdout
    return project


def test_a_clone_draws_figures_from_what_is_released(built, clone):
    due = clone.stale()
    assert due == {f"figure:{name}" for name in built.chosen}, due
    clone.build()
    drawn = [f"figures/smoke/{name}.{kind}" for name in built.chosen for kind in ("pdf", "csv")]
    for path in [TABLE, *drawn]:
        assert (clone.folder / path).read_bytes() == (built.folder / path).read_bytes(), path
    assert not list((clone.folder / "results").rglob("model.safetensors"))
    assert command(clone, "captions").returncode == 0
    audited = command(clone, "audit")
    assert audited.returncode == 0, audited.stdout
    assert "files are known and not here" in audited.stdout


def test_what_is_not_released_is_made_again_where_it_is_asked_for(built, clone):
    assert manifest.read(clone.folder / RUN / "manifest.json").state == "absent"
    job = str(clone.folder / RUN / "record.json")
    done = clone.process(
        [sys.executable, "-m", "ptq_dynamics.engine.run", "--restore", "--job", job]
    )
    assert done.returncode == 0, done.stderr
    for path in (built.folder / RUN).rglob("*.safetensors"):
        other = clone.folder / path.relative_to(built.folder)
        assert other.read_bytes() == path.read_bytes(), path
    assert clone.stale() <= {f"figure:{name}" for name in built.chosen}


def test_right_files_that_are_here_stay_and_wrong_ones_go(built, archive, tmp_path):
    project = Project(shutil.copytree(built.folder, tmp_path / "project"), built.figures, deep=True)
    tokens = project.folder / "results/smoke/corpus/main/train.bin"
    weights = sorted((project.folder / "results").rglob("*.safetensors"))
    state = next((project.folder / RUN).glob("step-*/model.safetensors"))
    right = tokens.read_bytes(), state.read_bytes()
    for path, content in zip((tokens, state), right, strict=True):
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    (project.folder / RUN / "curve.csv").unlink()
    assert len(project.stale()) > 10
    done = command(project, "adopt", archive.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not tokens.exists() and not state.exists()
    assert {*weights} - {state} == {*(project.folder / "results").rglob("*.safetensors")}
    assert project.stale() == set()
    result = manifest.read(tokens.parent / "manifest.json")
    assert result.dropped() == {"train.bin"}


def test_equal_results_give_equal_archives(built, archive, tmp_path):
    assert command(built, "release", tmp_path / "again").returncode == 0
    assert (tmp_path / "again" / RELEASE).read_bytes() == archive.read_bytes()


def test_only_what_is_fresh_is_released(built, tmp_path):
    project = Project(shutil.copytree(built.folder, tmp_path / "project"), built.figures)
    with project.edited(f"{RUN}/curve.csv") as (path,):
        path.write_bytes(b"other")
        done = command(project, "release", tmp_path / "out")
    assert done.returncode == 1 and not (tmp_path / "out").exists()
    assert done.stderr.count("\n") == 1 and "are not fresh" in done.stderr, done.stderr
    blocked = tmp_path / "file"
    blocked.touch()
    done = command(project, "release", blocked)
    assert done.stderr.startswith("error: ") and "cannot be written" in done.stderr, done.stderr


def test_all_seeds_of_a_release_are_taken_over(built, tmp_path):
    """Without being asked for: figures of one seed are drawn from it, and of all of them."""
    few = replace(built, figures="fig06")
    project = replace(few, folder=shutil.copytree(built.folder, tmp_path / "project"))
    config = project.folder / "config/config.yaml"
    project.replace(config, "more_seeds: []", "more_seeds: [102]")
    project.build()
    assert command(project, "release", tmp_path / "out").returncode == 0
    clone = Project.copy(tmp_path / "clone", figures="fig06")
    done = command(clone, "adopt", tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    told = re.search(r"^of seeds 102, (\d+) more were taken over; make", done.stdout, re.M)
    assert told and int(told[1]) > 5, done.stdout
    assert clone.stale() == {"figure:fig06"}
    clone.replace(clone.folder / "config/config.yaml", "more_seeds: []", "more_seeds: [102]")
    assert clone.stale() == {"figure:fig06"}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A commit of the project in which a figure is built and claims are judged."""
    project = Project.copy(tmp_path_factory.mktemp("repository") / "project", figures="fig06")
    shutil.copy2(ROOT / ".gitignore", project.folder)
    who = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "All"]):
        assert project.process(["git", *words]).returncode == 0
    done = project.snakemake(targets=("figures", "claims", "tables", "paper"))
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return project


def test_the_repository_keeps_what_is_read_of_a_scale(repository):
    old = repository.folder / "figures/reference/smoke/gone.png"
    old.parent.mkdir(parents=True)
    old.touch()
    assert repository.process(["git", "add", "-N", "-f", str(old)]).returncode == 0
    done = command(repository, "release")
    assert done.returncode == 1 and "is no clean commit" in done.stderr, done.stderr
    assert old.exists(), "nothing goes before all is right"
    assert repository.process(["git", "rm", "-q", "--cached", str(old)]).returncode == 0
    done = command(repository, "release")
    assert done.returncode == 0 and "results, " in done.stdout, done.stderr
    pictures, results = (
        repository.folder / place / "reference/smoke" for place in ("figures", "results")
    )
    assert {path.name for path in pictures.iterdir()} == {
        *("README.md", "fig06.png", "fig06.csv", "fig06.record.json")
    }
    for path in pictures.glob("fig06.*"):
        own = repository.folder / "figures/smoke" / path.name
        assert path.read_bytes() == own.read_bytes()
    kept = {str(path.relative_to(results)) for path in results.rglob("*") if path.is_file()}
    told = {f"tables/{path.name}" for path in (results / "tables").iterdir()}
    assert {"tables/claims.md", "tables/headline.csv", "tables/record.json"} <= told
    costs = {f"cost.{suffix}" for suffix in ("csv", "md", "tex")}
    judged, paper = {"claims.json", "claims.record.json"}, {"paper.pdf", "paper.record.json"}
    assert kept - told - costs == {RELEASE, SUMS, *judged, *paper}
    checked = repository.process(["sha256sum", "-c", "--quiet", str(results / SUMS)])
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_what_no_commit_made_is_not_kept(repository):
    path = "results/smoke/claims.record.json"
    with repository.edited(path) as (record,):
        told = json.loads(record.read_text())
        assert told["git"]["dirty"] is False
        record.unlink()
        with repository.edited("config/README.md") as (page,):
            page.write_text("Other words.")
            assert repository.snakemake(targets=("claims",)).returncode == 0
        done = command(repository, "release")
    assert done.returncode == 1 and "code that is in no commit" in done.stderr, done.stderr
