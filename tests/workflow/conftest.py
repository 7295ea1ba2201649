"""One build of scale smoke, shared by all tests of the workflow."""

import pytest
from project import Project


@pytest.fixture(scope="session")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, str]:
    """The project after its first build, and what Snakemake printed."""
    project = Project.copy(tmp_path_factory.mktemp("smoke") / "project")
    return project, project.build()


@pytest.fixture(scope="session")
def built(first: tuple[Project, str]) -> Project:
    """The project after its first build."""
    return first[0]
