"""Environments of tools: a failed installation costs nothing that was installed before."""

from pathlib import Path

import pytest
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.execute import execute
from ptq_dynamics.quantize import environment
from support import plan

pytestmark = pytest.mark.slow


def call(command, context, options=None):
    """Instead of venv and pip, which take seconds."""
    if "venv" in command:
        python = Path(command[-1]) / "bin/python"
        python.parent.mkdir(parents=True)
        python.touch()
    elif str(environment.INSTALL) in command and "broken" in Path(command[-1]).read_text():
        raise Problem("broken cannot be installed")
    return ""


@pytest.fixture
def install(tmp_path, monkeypatch, workspace):
    """Install from the text of a lock file; the exit status."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(environment, "_call", call)
    job = workspace.plan.job("environment", tool="gptqmodel").spec
    lock = tmp_path / "lock.txt"

    def run(text: str) -> int:
        lock.write_text(text)
        job["settings"] |= {"lock": str(lock), "digest": environment.digest(lock)}
        return execute(job)

    return run


def test_what_is_installed_stays_until_another_is_published(install, capfd):
    def interpreter() -> Path:
        return environment.python(manifest.read(Path("envs/gptqmodel/manifest.json")))

    def installed() -> list[str]:
        return sorted(path.name for path in Path("envs/gptqmodel").glob(".venv*"))

    assert install("first==1.0\n") == 0
    first = interpreter()
    before = first.parent.stat().st_ino
    assert install("broken==1.0\n") == 1
    assert "cannot be installed" in capfd.readouterr().err
    assert interpreter() == first and first.exists()
    # Another comment installs nothing again.
    assert install("# A comment.\nfirst==1.0\n") == 0
    assert interpreter() == first and first.parent.stat().st_ino == before
    assert install("second==1.0\n") == 0
    second = interpreter()
    # What was half-made is gone, and so is the earlier one.
    assert second != first and installed() == [second.parent.parent.name]


def test_a_result_depends_on_the_script_that_runs_there():
    job = plan("smoke").measuring.measure("wsd-3e-3", "gptqmodel-4bit", "all", 100)
    assert "quantize.foreign.worker" in job.code.modules
