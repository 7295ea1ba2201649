"""Tests that need a GPU. With GPU_TESTS_ON=cpu they run on the CPU, at a smaller size."""

import os
import sys
from collections.abc import Iterator

import pytest
import torch
from support import Workspace, plan, tiny_config

# Processes that tests start find what this one finds; on a GPU machine packages lie elsewhere.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
ON_CPU = os.environ.get("GPU_TESTS_ON") == "cpu"
ABSENT = "CUDA sees no GPU; GPU_TESTS_ON=cpu runs these tests on the CPU at a small size"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not (ON_CPU or torch.cuda.is_available()):
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(ABSENT))


@pytest.fixture(scope="session")
def kind() -> str:
    """The kind of device that jobs have to use here."""
    return "cpu" if ON_CPU else "cuda"


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """The tiny configuration with its corpus and one run."""
    folder = tmp_path_factory.mktemp("workspace")
    built = Workspace(folder, plan("smoke", tiny_config(folder)))
    built.build(built.plan.trajectories.corpus("main"))
    built.build(built.plan.trajectories.train("trunk"))
    return built
