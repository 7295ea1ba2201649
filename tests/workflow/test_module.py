"""The workflow as part of another one, started in several ways, and with code of its own."""

import json
import os
import shutil
import sys
from contextlib import chdir
from pathlib import Path
from subprocess import PIPE, Popen, run

import pytest
import yaml
from project import SNAKEMAKE, Project
from ptq_dynamics.engine import manifest, verified
from support import ROOT, artifacts, differing

CORPUS = "results/smoke/corpus/main"
SNAKEFILE = """
module dynamics:
    snakefile: "{root}/workflow/Snakefile"
    config: {{"scale": "smoke", "seed": 101, "figures": "fig04"}}

use rule * from dynamics as dynamics_*

onstart:
    print("theirs")

rule mine:
    default_target: True
    input: "figures/smoke/fig04.pdf"
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


def test_a_workflow_that_imports_this_one_plans_its_jobs(importing):
    status, said = snakemake(importing, "-n", "--quiet", "rules")
    assert status == 0, said[-2000:]
    for rule in ("corpus", "train", "quantize", "evaluate", "figure"):
        assert f"dynamics_{rule} " in said
    assert not (importing / ".snakemake/ptq-dynamics").exists(), "a dry run wrote specifications"
    assert not (importing / "results").exists()


def test_a_workflow_that_imports_this_one_brings_its_own_configuration(importing):
    shutil.copytree(ROOT / "config", importing / "config")
    runs = importing / "config/runs.yaml"
    runs.write_text(runs.read_text().replace("cooldown: 18/190", "cooldwn: 18/190", 1))
    status, said = snakemake(importing, "-n")
    assert status == 1 and "runs.rainbow-002.cooldwn: unknown key" in said, said[-2000:]


def test_its_jobs_run_and_so_does_the_hook_of_the_importing_workflow(importing, built):
    status, said = snakemake(importing, "--no-hooks", f"{CORPUS}/manifest.json")
    assert status == 1 and "Snakemake writes it when it starts a build" in said
    status, said = snakemake(importing, f"{CORPUS}/manifest.json")
    assert status == 0 and "theirs" in said, said[-2000:]
    assert not differing(artifacts(importing / CORPUS), artifacts(built.folder / CORPUS))


def test_the_linter_has_nothing_to_say(importing):
    for folder in (ROOT, importing):
        status, said = snakemake(folder, "--lint")
        assert status == 0 and "in a good condition" in said, said[-2000:]


def test_the_code_beside_the_snakefile_runs(tmp_path):
    """Whichever checkout the environment was installed from: here a copy with a job of its own."""
    other = Project.copy(tmp_path / "other")
    embedded = other.folder / "workflow/ptq_dynamics/corpus/sources/embedded.py"
    embedded.write_text(embedded.read_text() + "\n\nassert True\n")
    done = run(
        [SNAKEMAKE, "-c1", "--config", "scale=smoke", "--", f"{CORPUS}/manifest.json"],
        cwd=other.folder,
        env=other.without_path(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    (file,) = (other.folder / ".snakemake/ptq-dynamics").iterdir()
    digests = json.loads(file.read_text())["definitions"]
    record = json.loads((other.folder / CORPUS / "record.json").read_text())
    entry = other.folder / f"results/smoke/code/{record['job']['code']}.json"
    assert json.loads(entry.read_text()) == digests
    command = [sys.executable, "-c", CODE]
    printed = run(command, env=other.without_path(), capture_output=True, text=True, check=True)
    here = json.loads(printed.stdout)
    changed = {name for name in digests if digests[name] != here.get(name)}
    assert changed == {"", "(1)"}, "what the module does when it is imported, and so all of it"


CODE = """
import json
from ptq_dynamics.engine import fingerprint
print(json.dumps(fingerprint.planned("corpus.corpus", (), ()).definitions))
"""


@pytest.mark.parametrize("module", [["cli", "config"], ["cli.sweep", "regime"]])
def test_a_command_does_not_run_the_code_of_another_checkout(tmp_path, module):
    other = Project.copy(tmp_path / "other")
    name, *arguments = module
    command = [sys.executable, "-m", f"ptq_dynamics.{name}", *arguments]
    done = run(
        command,
        cwd=other.folder,
        env=other.without_path() | {"PYTHONPATH": str(ROOT / "workflow")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert f"that of another checkout, {ROOT}; set PYTHONPATH=workflow" in done.stderr


CONDA = """#!/bin/sh
# As much of conda as Snakemake asks for: an environment whose python says that it was run.
case "$1 $2" in
    "info --json") echo '{{"conda_prefix": "{home}", "platform": "linux-64"}}' ;;
    "--version ") echo "conda 25.3.0" ;;
    "config --get") echo '{{"get": {{"channel_priority": "strict"}}}}' ;;
    "env create")
        cp "$6" "{home}/wanted.yaml"
        mkdir -p "$8/bin"
        cp "{home}/python" "$8/bin" ;;
esac
"""
PYTHON = """#!/bin/sh
echo ran >> "{home}/ran"
exec "{python}" "$@"
"""
ACTIVATE = 'export PATH="$1/bin:$PATH"\n'


@pytest.fixture
def conda(tmp_path):
    """A stand-in for conda, which cannot be installed from the registries that tests may use."""
    home = tmp_path / "conda"
    (home / "bin").mkdir(parents=True)
    for name, text in {"bin/conda": CONDA, "python": PYTHON}.items():
        (home / name).write_text(text.format(home=home, python=sys.executable))
        (home / name).chmod(0o755)
    (home / "bin/activate").write_text(ACTIVATE)
    return home


def test_jobs_run_in_the_environment_that_conda_makes(built, conda, tmp_path):
    """Not in the one that Snakemake runs in, and with the code of the checkout."""
    folder = tmp_path / "build"
    folder.mkdir()
    command = [SNAKEMAKE, "-s", str(ROOT / "Snakefile"), "-c1", "--config", "scale=smoke"]
    done = run(
        [*command, "--software-deployment-method", "conda", "--", f"{CORPUS}/manifest.json"],
        cwd=folder,
        env=built.without_path() | {"PATH": f"{conda}/bin:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert (conda / "ran").read_text() == "ran\n"
    assert not differing(artifacts(folder / CORPUS), artifacts(built.folder / CORPUS))
    wanted = (conda / "wanted.yaml", ROOT / "envs/main.yaml")
    given, kept = (yaml.safe_load(path.read_text()) for path in wanted)
    assert given == kept


def test_builds_side_by_side_hand_over_what_each_needs(built, tmp_path):
    """Two Snakemakes in one folder, for different results of one corpus."""
    shutil.copytree(built.folder / "results", tmp_path / "results")
    shutil.copytree(built.folder / ".snakemake", tmp_path / ".snakemake")
    names = ("constant-3e-3", "rainbow-036")
    wanted = [f"results/smoke/evaluate/{name}/seed-101/fp/all" for name in names]
    before = [artifacts(tmp_path / place) for place in wanted]
    command = [SNAKEMAKE, "-s", str(built.folder / "Snakefile"), "-c1", "--config", "scale=smoke"]
    processes = [
        Popen(
            [*command, "--force", "--", f"{place}/manifest.json"],
            cwd=tmp_path,
            env=built.variables(),
            stdout=PIPE,
            stderr=PIPE,
            text=True,
        )
        for place in wanted
    ]
    for process in processes:
        said = process.communicate()[1]
        assert process.returncode == 0, said[-2000:]
    for place, content in zip(wanted, before, strict=True):
        assert content and not differing(content, artifacts(tmp_path / place))


def test_a_job_that_fails_is_one_line_with_the_place_of_its_log(built, tmp_path):
    shutil.copytree(built.folder / "results", tmp_path / "results")
    shutil.copytree(built.folder / ".snakemake", tmp_path / ".snakemake")
    run_ = "results/smoke/train/constant-3e-3/seed-101"
    weights = sorted((tmp_path / run_).glob("step-*/model.safetensors"))[-1]
    weights.write_bytes(weights.read_bytes()[::-1])
    # As if its bytes had been found right: the job notices it, the planner does not.
    with chdir(tmp_path):
        result = manifest.read(Path(run_) / "manifest.json")
        verified.note(result, [str(weights.relative_to(tmp_path / run_))])
    target = "results/smoke/evaluate/constant-3e-3/seed-101/fp/all"
    command = [SNAKEMAKE, "-s", str(built.folder / "Snakefile"), "-c1", "--config", "scale=smoke"]
    command += ["--workflow-profile", str(built.folder / "profiles/default")]
    done = run(
        [*command, "--force", "--", f"{target}/manifest.json"],
        cwd=tmp_path,
        env=built.variables(),
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 1
    (line,) = [line for line in said.splitlines() if line.startswith("error: ")]
    assert "is damaged (its sha256 is not" in line and line.endswith(f"(log: {target}/.log)")
    after = said.partition(line)[2]
    assert max(map(len, after.splitlines())) < 250, "a specification is shown"
