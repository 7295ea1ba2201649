"""Unusual places: odd characters in paths, no git, a read-only home, another working directory,
settings of matplotlib, another workflow that imports this one, and another checkout."""

import json
import os
import shutil

from project import SNAKEMAKE, Project
from support import ROOT, artifacts, differing

CORPUS = "results/smoke/corpus/main"
FIGURES = [f"figures/smoke/fig04.{kind}" for kind in ("csv", "pdf", "png")]
# Nobody can make folders there, not even root.
HOME = {"HOME": "/proc/none"}
HERE = {"PYTHONPATH": str(ROOT / "workflow")}


SETTINGS = """
savefig.bbox: tight
savefig.dpi: 50
font.family: serif
axes.grid: True
axes.prop_cycle: cycler('color', ['r'])
"""


def test_a_build_in_a_folder_with_spaces_without_git_and_home(built, tmp_path):
    """Of all figures of scale smoke one is drawn anew; .snakemake is lost."""
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "MPLCONFIGDIR": str(tmp_path / "cache")}
    # As Jupyter has it.
    cache["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    project = Project.copy(tmp_path / "it's a c\u00f6py", figures="fig04", environment=HOME | cache)
    for name in ("results", "figures"):
        shutil.copytree(built.folder / name, project.folder / name)
    (project.folder / "matplotlibrc").write_text(SETTINGS)
    for name in ("manifest.json", "csv", "record.json"):
        (project.folder / f"figures/smoke/fig04.{name}").unlink()
    said = project.build(targets=("figures",))
    assert "fig04: done in" in said and said.count(": done in ") == 1, said
    assert "records of this build name no commit (git says: fatal: not a git repository" in said
    for name in FIGURES:
        assert (project.folder / name).read_bytes() == (built.folder / name).read_bytes()
    record = json.loads((project.folder / "figures/smoke/fig04.record.json").read_text())
    assert record["git"] is None


def test_a_build_from_another_folder_with_spaces_runs_the_code_beside_the_snakefile(
    built, tmp_path
):
    """Whichever checkout the environment was installed from; by a profile that is given with its
    path, as `measure` builds."""
    project, folder = Project.copy(tmp_path / "it's {a} c\u00f6py"), tmp_path / "else 'where'"
    embedded = project.folder / "workflow/ptq_dynamics/corpus/sources/embedded.py"
    embedded.write_text(embedded.read_text() + "\n\nassert True\n")
    folder.mkdir()
    command = [SNAKEMAKE, "-s", str(project.folder / "Snakefile"), "-d", str(folder), "-c1"]
    command += ["--workflow-profile", str(project.folder / "profiles/default")]
    own = {**HOME, "PYTHONPATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = Project(tmp_path, environment=own).process(
        [*command, "--config", "scale=smoke", "--", f"{CORPUS}/manifest.json"]
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    # The specification holds the digest of the code.
    changed = differing(artifacts(built.folder / CORPUS), artifacts(folder / CORPUS))
    assert changed == ["spec.json"]
    assert not (project.folder / "results").exists()
    assert os.listdir(tmp_path / "cache")


IMPORTING = """
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


def test_a_workflow_that_imports_this_one_has_its_own_configuration_and_hooks(built, tmp_path):
    project = Project(tmp_path, environment=HERE)
    root = os.path.relpath(ROOT, tmp_path)
    (tmp_path / "Snakefile").write_text(IMPORTING.format(root=root))
    runs = shutil.copytree(ROOT / "config", tmp_path / "config") / "runs.yaml"
    command = [SNAKEMAKE, "--cores", "1", f"{CORPUS}/manifest.json"]
    with project.edited("config/runs.yaml"):
        project.replace(runs, "cooldown: 18/190", "cooldwn: 18/190")
        done = project.process([*command, "-n"])
        said = done.stdout + done.stderr
        assert done.returncode == 1 and "runs.rainbow-002.cooldwn: unknown key" in said, said
    done = project.process(command)
    assert done.returncode == 0 and "theirs" in done.stdout + done.stderr, done.stderr[-2000:]
    assert not differing(artifacts(tmp_path / CORPUS), artifacts(built.folder / CORPUS))


def test_a_command_does_not_run_the_code_of_another_checkout(tmp_path):
    done = Project.copy(tmp_path / "other", environment=HERE).ptq("config")
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert f"that of another checkout, {ROOT}; set PYTHONPATH=workflow" in done.stderr
