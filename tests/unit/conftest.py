"""A tiny workspace, built once by the real stages: corpus, runs, average, quantized models."""

import base64
import hashlib
import importlib
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import torch
from hub import Hub, serve
from huggingface_hub import constants
from ptq_dynamics import cli
from ptq_dynamics.engine.manifest import Manifest
from support import Workspace, plan, tiny_config
from tiny import create
from toy import NAMES, Toy
from transformers import LlamaForCausalLM


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files of slow tests alone, whose imports take seconds, where none of them runs."""
    if config.option.markexpr != "not slow" or collection_path.suffix != ".py":
        return None
    return "\npytestmark = pytest.mark.slow" in collection_path.read_text() or None


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The tiny configuration with its corpus."""
    folder: Path = tmp_path_factory.mktemp("workspace")
    built = Workspace(folder, plan("smoke", tiny_config(folder)))
    built.build(built.plan.trajectories.corpus("main"))
    return built


@pytest.fixture(scope="session")
def corpus(workspace: Workspace) -> Manifest:
    """Token files and tokenizer."""
    return workspace.manifest(workspace.plan.trajectories.corpus("main"))


@pytest.fixture(scope="session")
def trunk(workspace: Workspace) -> Manifest:
    """A run of 24 steps with a checkpoint every 2 and a state every 6."""
    return workspace.build(workspace.plan.trajectories.train("trunk"))


@pytest.fixture(scope="session")
def branch(workspace: Workspace, trunk: Manifest) -> Manifest:
    """A linear cooldown of the trunk from step 12 to 20."""
    return workspace.build(workspace.plan.trajectories.train("branch"))


@pytest.fixture(scope="session")
def rtn(workspace: Workspace, trunk: Manifest) -> Manifest:
    """The trunk rounded to 3 bits."""
    return workspace.build(workspace.plan.measurements.measure("trunk", "rtn3", "all", 100))


@pytest.fixture(scope="session")
def gptq(workspace: Workspace, trunk: Manifest) -> Manifest:
    """The trunk under 3-bit GPTQ."""
    return workspace.build(workspace.plan.measurements.measure("trunk", "gptq3", "all", 100))


@pytest.fixture(scope="session")
def model() -> LlamaForCausalLM:
    """A model in float32 whose weights bfloat16 holds."""
    model: LlamaForCausalLM = create(vocab_size=300)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.bfloat16())
    return model


@pytest.fixture(scope="session")
def built_toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """A toy (tests/toy.py) with its results."""
    toy = Toy.at(tmp_path_factory.mktemp("toy"))
    assert toy.made(toy.build()) == {*NAMES}
    return toy


@pytest.fixture
def toy(built_toy: Toy, tmp_path: Path) -> Toy:
    """A copy of it that a test may change."""
    return built_toy.copied(tmp_path / "copy")


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Install a distribution `brief` with some files, by name, as pip would from a wheel; the
    folder that they are in."""

    def do(files: Mapping[str, str], tag: str = "py3-none-any") -> Path:
        info = "brief-1.0.dist-info"
        about = "Metadata-Version: 2.1\nName: brief\nVersion: 1.0\n"
        wheel = f"Wheel-Version: 1.0\nTag: {tag}\n"
        brought = {f"{info}/METADATA": about, f"{info}/WHEEL": wheel, **files}
        record = f"{info}/RECORD,,\n"
        for name, text in brought.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).decode()
            record += f"{name},sha256={digest.rstrip('=')},{path.stat().st_size}\n"
        (tmp_path / info / "RECORD").write_text(record)
        monkeypatch.syspath_prepend(str(tmp_path))
        importlib.invalidate_caches()
        return tmp_path

    return do


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that this process takes for the real one, as one with its URL in HF_ENDPOINT does."""
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.removeprefix(constants.ENDPOINT)
    with serve(tmp_path / "hub") as found:
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", found.url + template)
        monkeypatch.setattr(constants, "ENDPOINT", found.url)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "cache/token"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield found


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], tuple[int, str, str]]:
    """Run `ptq-dynamics` in this process; its status, and what it prints and says."""
    # What the command does to its process alone.
    monkeypatch.setattr("ptq_dynamics.cli.run.end_at_once", lambda: None)

    def do(words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["ptq-dynamics", *shlex.split(words)])
        status = cli.main()
        return status, *capsys.readouterr()

    return do
