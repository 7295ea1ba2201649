"""A tiny workspace, built once by the real stages: corpus, runs, average, quantized models."""

from pathlib import Path

import pytest
import torch
from ptq_dynamics.jobs.manifest import Manifest
from support import Workspace, plan, tiny_config


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The tiny configuration with its corpus."""
    folder: Path = tmp_path_factory.mktemp("workspace")
    built = Workspace(folder, plan("smoke", tiny_config(folder)))
    built.build(built.plan.corpora.corpus("main"))
    return built


@pytest.fixture(scope="session")
def corpus(workspace: Workspace) -> Manifest:
    """Token files and tokenizer."""
    return workspace.manifest(workspace.plan.corpora.corpus("main"))


@pytest.fixture(scope="session")
def trunk(workspace: Workspace) -> Manifest:
    """A run of 24 steps with a checkpoint every 2 and a state every 6."""
    return workspace.build(workspace.plan.trajectories.train("trunk"))


@pytest.fixture(scope="session")
def branch(workspace: Workspace, trunk: Manifest) -> Manifest:
    """A linear cooldown of the trunk from step 12 to 20."""
    return workspace.build(workspace.plan.trajectories.train("branch"))


@pytest.fixture(scope="session")
def average(workspace: Workspace, trunk: Manifest) -> Manifest:
    """Means of the trunk's last 3 checkpoints."""
    return workspace.build(workspace.plan.trajectories.average("lawa"))


@pytest.fixture(scope="session")
def rtn(workspace: Workspace, trunk: Manifest) -> Manifest:
    """The trunk rounded to 3 bits."""
    return workspace.build(workspace.plan.quantization.quantize("trunk", "rtn3"))


@pytest.fixture(scope="session")
def gptq(workspace: Workspace, trunk: Manifest) -> Manifest:
    """The trunk under 3-bit GPTQ."""
    return workspace.build(workspace.plan.quantization.quantize("trunk", "gptq3"))
