"""The workflow as part of another one, started in several ways, and with code of its own."""

import os
import shutil
from subprocess import run

import pytest
from project import SNAKEMAKE, Project
from ptq_dynamics.engine import record
from ptq_dynamics.engine.code import Node, Program
from support import ROOT, artifacts, differing

CORPUS = "results/smoke/corpus/main"
SNAKEFILE = """
module dynamics:
    snakefile: "{root}/workflow/Snakefile"
    config: {{"scale": "smoke", "seed": 201, "figures": "fig04"}}

use rule * from dynamics as dynamics_*

onstart:
    print("theirs")

rule mine:
    default_target: True
    input: "figures/smoke/fig04.manifest.json"
"""


def snakemake(folder, *arguments):
    done = run(
        [SNAKEMAKE, "--cores", "1", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def importing(tmp_path):
    """A folder with a workflow that imports this one."""
    (tmp_path / "Snakefile").write_text(SNAKEFILE.format(root=os.path.relpath(ROOT, tmp_path)))
    return tmp_path


def test_a_workflow_that_imports_this_one_brings_its_own_configuration(importing):
    shutil.copytree(ROOT / "config", importing / "config")
    runs = importing / "config/runs.yaml"
    runs.write_text(runs.read_text().replace("cooldown: 18/190", "cooldwn: 18/190", 1))
    status, said = snakemake(importing, "-n")
    assert status == 1 and "runs.rainbow-002.cooldwn: unknown key" in said, said[-2000:]


def test_its_jobs_run_and_so_does_the_hook_of_the_importing_workflow(importing, built):
    status, said = snakemake(importing, f"{CORPUS}/manifest.json")
    assert status == 0 and "theirs" in said, said[-2000:]
    assert not differing(artifacts(importing / CORPUS), artifacts(built.folder / CORPUS))


def test_the_code_beside_the_snakefile_runs(tmp_path):
    """Whichever checkout the environment was installed from: here a copy with a job of its own."""
    other = Project.copy(tmp_path / "other", environment={"PYTHONPATH": ""})
    embedded = other.folder / "workflow/ptq_dynamics/corpus/sources/embedded.py"
    embedded.write_text(embedded.read_text() + "\n\nassert True\n")
    command = [SNAKEMAKE, "-c1", "--config", "scale=smoke", "--", f"{CORPUS}/manifest.json"]
    done = other.process(command)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    here = Program().code([Node("ptq_dynamics.corpus.sources.embedded", "EmbeddedCorpus")]).modules
    made = record.read(other.folder / CORPUS / "record.json").job["code"]
    assert "corpus.sources.embedded" in {name for name in here if here[name] != made[name]}


@pytest.mark.parametrize("arguments", [["config"], ["dev", "regime"]])
def test_a_command_does_not_run_the_code_of_another_checkout(tmp_path, arguments):
    this = {"PYTHONPATH": str(ROOT / "workflow")}
    other = Project.copy(tmp_path / "other", environment=this)
    done = other.ptq(*arguments)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert f"that of another checkout, {ROOT}; set PYTHONPATH=workflow" in done.stderr
