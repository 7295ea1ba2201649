"""A copy of the project in which the real Snakemake builds scale smoke."""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from subprocess import CompletedProcess, Popen, run
from typing import Any

import psutil
from ptq_dynamics.config import scales
from ptq_dynamics.plan import Plan
from support import ROOT, plan

FIGURES = "fig04 fig07"
FEW = "pythia"  # the figure of the fewest jobs
SEED = 201
TABLE = "results/smoke/measurements.csv"
COLLECTED = "results/smoke/measurements.manifest.json"
ALL = ("figures", COLLECTED, "claims", "tables", "paper")
# In the user's name and home and in the path of the first build; no result may tell of it.
UNUSUAL = "señor-unusual"
SNAKEMAKE = str(Path(sys.executable).with_name("snakemake"))
DESCRIBED = (".zenodo.json", ".gitignore", "README.md", "CITATION.cff", "LICENSE", "NOTICE")
PARTS = ("Snakefile", "pyproject.toml", "config", "paper", "profiles", "workflow", *DESCRIBED)
# Of these folders, what is built.
BUILT = {"paper": scales(ROOT / "config")}


@dataclass
class Project:
    """One working copy."""

    folder: Path
    figures: str = FIGURES
    environment: Mapping[str, str] = field(default_factory=dict)
    deep: bool = False

    @classmethod
    def copy(cls, folder: Path, **settings: Any) -> "Project":
        """A fresh working copy of the project's sources."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in PARTS:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
            ignored = BUILT.get(name)
            options = {"ignore": shutil.ignore_patterns(*ignored)} if ignored else {}
            copy(ROOT / name, folder / name, **options)
        # Paths in tests name a seed, whichever the project builds now.
        config = folder / "config/config.yaml"
        config.write_text(re.sub(r"^seed: \d+", f"seed: {SEED}", config.read_text(), flags=re.M))
        (folder / "envs").mkdir()
        for file in (ROOT / "envs").iterdir():
            if file.is_file():
                shutil.copy2(file, folder / "envs")
        return cls(folder, **settings)

    def copied(self, folder: Path) -> "Project":
        """This working copy with all that is built in it, in another folder."""
        return replace(self, folder=shutil.copytree(self.folder, folder, symlinks=True))

    @property
    def plan(self) -> Plan:
        """The plan of scale smoke, from the configuration of this copy."""
        return plan("smoke", self.folder / "config", seed=SEED)

    @property
    def chosen(self) -> list[str]:
        """Names of the figures that are built."""
        return self.figures.split()

    def variables(self) -> dict[str, str]:
        """Environment of processes in this copy, whose package is that of the copy."""
        own = {"PYTHONPATH": str(self.folder / "workflow"), **self.environment}
        return {**os.environ, **own}

    def command(
        self, *arguments: str, targets: tuple[str, ...] = ("figures", COLLECTED)
    ) -> list[str]:
        """Command line of Snakemake for the chosen figures and the table."""
        choice = ["--config", "scale=smoke", f"figures={self.figures}", f"deep={self.deep}"]
        return [SNAKEMAKE, *choice, *arguments, "--", *targets]

    def snakemake(self, *arguments: str, **options: Any) -> CompletedProcess[str]:
        """Run Snakemake to its end."""
        return self.process(self.command(*arguments, **options))

    def process(self, command: list[str]) -> CompletedProcess[str]:
        """Run a command in this copy."""
        return run(
            command,
            cwd=self.folder,
            env=self.variables(),
            capture_output=True,
            text=True,
            check=False,
        )

    def start(self, command: list[str], **options: Any) -> Popen[str]:
        """Start a command in this copy."""
        return Popen(command, cwd=self.folder, env=self.variables(), text=True, **options)

    def ptq(self, *words: str | Path) -> CompletedProcess[str]:
        """Run the command of the package in this copy."""
        return self.process([sys.executable, "-m", "ptq_dynamics.cli", *map(str, words)])

    def build(self, *arguments: str, **options: Any) -> str:
        """Build what is missing or stale; what Snakemake printed."""
        done = self.snakemake(*arguments, **options)
        said = done.stdout + done.stderr
        assert done.returncode == 0, said[-3000:]
        return said

    def stale(self) -> set[str]:
        """The jobs whose results are not up to date for the chosen figures, by their folders
        below those of the scale; from records alone."""
        found = (each["manifest"] for each in self.status() if each["state"] != "up to date")
        return named(found)

    def status(self) -> list[dict[str, str]]:
        """State of every result of the chosen figures, as the command has it."""
        choice = ["--scale", "smoke", "--figures", self.figures, "--json"]
        done = self.ptq("status", *choice, *(["--deep"] if self.deep else []))
        found = json.loads(done.stdout or "[]")
        fresh = {each["state"] for each in found} == {"up to date"}
        assert done.returncode == (not fresh) and found, done.stdout + done.stderr
        return found

    def planned(self, **options: Any) -> set[str]:
        """The jobs that Snakemake would run, in the same words."""
        plain = ["--workflow-profile", "none", "--rerun-triggers", "mtime", "--cores", "1"]
        plain += ["--max-inventory-time", "0"]
        done = self.snakemake("-n", "--quiet", "host", *plain, **options)
        said = done.stdout + done.stderr
        assert done.returncode == 0, said[-3000:]
        outputs = re.findall(r"^    output: (\S+?manifest.json)$", said, flags=re.M)
        assert outputs or "Nothing to be done" in said, said[-3000:]
        return named(outputs)

    @contextmanager
    def edited(self, *names: str) -> Iterator[list[Path]]:
        """Files that may be edited or deleted, put back afterwards as if nothing had happened."""
        paths = [self.folder / name for name in names]
        kept = [(path, path.read_bytes(), path.stat()) for path in paths]
        try:
            yield paths
        finally:
            for path, content, times in kept:
                path.write_bytes(content)
                os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def replace(self, path: Path, old: str, new: str) -> None:
        """Replace a text that occurs in a file, once."""
        text = path.read_text()
        assert old in text, f"{path.name} no longer holds {old!r}"
        path.write_text(text.replace(old, new, 1))

    def modules(self) -> list[str]:
        """All modules of the package, relative to the copy."""
        found = (self.folder / "workflow").rglob("*.py")
        return sorted(str(path.relative_to(self.folder)) for path in found)


def named(manifests: Iterable[str]) -> set[str]:
    """Jobs by their folders below those of the scale, and their stems."""
    parts = (path.removesuffix("manifest.json").split("/", 2)[2] for path in manifests)
    return {part.rstrip("./") or "paper" for part in parts}


def jobs_of(snakemake: int) -> list[psutil.Process]:
    """Processes of a build that run its jobs, or have the warm process run them, or are of it."""
    found = []
    for each in psutil.Process(snakemake).children(recursive=True):
        with suppress(psutil.Error, AttributeError):  # it has ended, or has no parent
            is_forked = "ptq_dynamics.engine.warm" in each.parent().cmdline()
            is_job = is_forked or "ptq_dynamics.engine.run" in each.cmdline()
            found += [each] * (is_job and each.status() != psutil.STATUS_ZOMBIE)
    return found
