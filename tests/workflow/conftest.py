"""One build of scale smoke, shared by all tests of the workflow."""

import fcntl
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from project import ALL, UNUSUAL, Project
from support import git

# The longest first, so that no process ends with one alone; of two that begin side by side, one
# does without the shared build.
ORDER = ("chaos", "backends", "own", "slurm", "staleness", "provenance", "release", "faults")
ORDER += ("distributed", "keep", "datasets", "sweep", "gpu_kit", "recipes", "precision", "engine")
ORDER += ("recipes_of_llm_compressor", "measure", "tasks", "smoke", "figures")


@pytest.fixture(scope="session")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, str]:
    """The project after the build of its first commit, and what Snakemake printed.

    Processes that test side by side have a copy each of what one of them built.
    """
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    folder, said = shared / f"smoke-of-{UNUSUAL}", shared / "smoke.txt"
    with (shared / "smoke.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if said.exists():
            project = Project(folder)
        else:
            project = Project.copy(folder)
            for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "All"]):
                git(folder, *words)
            home = shared / f"home-of-{UNUSUAL}"
            home.mkdir()
            user = {"USER": UNUSUAL, "LOGNAME": UNUSUAL, "HOME": str(home)}
            said.write_text(replace(project, environment=user).build(targets=ALL))
    if shared != own:
        copy = shutil.copytree(folder, own / "smoke", symlinks=True)
        project = replace(project, folder=copy)
    return project, said.read_text()


@pytest.fixture(scope="session")
def built(first: tuple[Project, str]) -> Project:
    """The project after its first build."""
    return first[0]


@pytest.fixture(scope="module")
def project(built: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of the first build for the tests of a module."""
    return built.copied(tmp_path_factory.mktemp("copied") / "project")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of these are slow, and their order is `ORDER`."""
    here, places = Path(__file__).parent, {f"test_{name}": at for at, name in enumerate(ORDER)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))
    for item in items:
        if here in item.path.parents:
            item.add_marker("slow")
