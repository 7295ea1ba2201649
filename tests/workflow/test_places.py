"""Unusual places: odd characters in paths, no git, a read-only home, another working directory, and
settings of matplotlib."""

import json
import os
import shutil

from matplotlib import rcParamsDefault
from project import SNAKEMAKE, Project
from support import artifacts, differing

CORPUS = "results/smoke/corpus/main"
FIGURES = [f"figures/smoke/fig04.{kind}" for kind in ("csv", "pdf", "png")]
# Nobody can make folders there, not even root.
HOME = {"HOME": "/proc/none"}


def other_settings():
    """A matplotlibrc with another value of every key that is a switch or a number, and more."""
    lines = ["savefig.bbox: tight", "font.family: serif", "axes.prop_cycle: cycler('color', ['r'])"]
    for key, value in rcParamsDefault.items():
        if isinstance(value, bool):
            lines.append(f"{key}: {not value}")
        elif isinstance(value, int | float):
            lines.append(f"{key}: {value * 2 + 1}")
    return "\n".join(lines)


def test_a_build_in_a_folder_with_spaces_without_git_and_home(built, tmp_path):
    """Of all figures of scale smoke one is drawn anew; .snakemake is lost."""
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "MPLCONFIGDIR": str(tmp_path / "cache")}
    # As Jupyter has it.
    cache["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    project = Project.copy(tmp_path / "it's a c\u00f6py", figures="fig04", environment=HOME | cache)
    for name in ("results", "figures"):
        shutil.copytree(built.folder / name, project.folder / name)
    (project.folder / "matplotlibrc").write_text(other_settings())
    for name in ("manifest.json", "csv", "record.json"):
        (project.folder / f"figures/smoke/fig04.{name}").unlink()
    said = project.build(targets=("figures",))
    assert "fig04: done in" in said and said.count(": done in ") == 1, said
    assert "records of this build name no commit (git says: fatal: not a git repository" in said
    for name in FIGURES:
        assert (project.folder / name).read_bytes() == (built.folder / name).read_bytes()
    record = json.loads((project.folder / "figures/smoke/fig04.record.json").read_text())
    assert record["git"] is None
    assert "Nothing to be done" in project.build(targets=("figures",))


def test_a_build_from_another_folder_with_spaces(built, tmp_path):
    """By a profile that is given with its path, as `measure` builds."""
    project, folder = Project.copy(tmp_path / "it's {a} c\u00f6py"), tmp_path / "else 'where'"
    folder.mkdir()
    command = [SNAKEMAKE, "-s", str(project.folder / "Snakefile"), "-d", str(folder), "-c1"]
    command += ["--workflow-profile", str(project.folder / "profiles/default")]
    own = {**HOME, "PYTHONPATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = Project(tmp_path, environment=own).process(
        [*command, "--config", "scale=smoke", "--", f"{CORPUS}/manifest.json"]
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert not differing(artifacts(built.folder / CORPUS), artifacts(folder / CORPUS))
    assert not (project.folder / "results").exists()
    assert os.listdir(tmp_path / "cache")
