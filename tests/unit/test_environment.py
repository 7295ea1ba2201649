"""Environments of tools: a failed installation costs nothing that was installed before."""

import re
import shutil
from pathlib import Path

import pytest
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.context import Context, Progress
from ptq_dynamics.engine.execute import execute
from ptq_dynamics.quantize import environment
from support import one_line, plan

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
    # Its Python is gone, as after an upgrade of the machine: the remedy helps.
    second.unlink()
    with pytest.raises(Problem) as caught:
        interpreter()
    (place,) = re.findall(r"remove (\S+) and build again", str(caught.value))
    Path(place).unlink() if Path(place).is_file() else shutil.rmtree(place)
    assert install("second==1.0\n") == 0
    assert interpreter() == second


@pytest.mark.parametrize("quantizer", ["gptqmodel-4bit", "autogptq-4bit"])
def test_a_result_depends_on_the_script_that_runs_there(quantizer):
    job = plan("smoke").measurements.measure("wsd-3e-3", quantizer, "all", 100)
    assert "quantize.foreign.worker" in job.code.modules


def test_a_tool_with_wheels_for_another_python_says_what_to_install(
    tmp_path, monkeypatch, workspace
):
    settings = workspace.plan.job("environment", tool="autogptq").spec["settings"]
    asked = environment.EnvironmentSettings(**settings | {"python": "3.99"})
    context = Context("autogptq", asked, {}, tmp_path, tmp_path, Progress("test"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with one_line("needs Python 3.99, ", " install python3.99 with venv, or uv"):
        environment._create(tmp_path / "environment", context)
