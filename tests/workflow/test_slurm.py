"""Builds on a real SLURM cluster of two virtual nodes, which this machine is for a while, by
Snakemake's own executor and profiles/slurm.

`make test-slurm` installs what it takes. It kills Snakemake and a job; SLURM_KILLS=20 kills more.
"""

import filecmp
import os
import random
import shutil
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import cycle
from pathlib import Path
from subprocess import STDOUT, Popen

import psutil
import pytest
from project import FEW, SEED, Project
from ptq_dynamics.engine import manifest
from slurm_cluster import Cluster, missing, running
from support import plan

PLUGINS = Path(os.environ.get("SLURM_PLUGINS") or Path(sys.prefix) / "slurm")
KINDS, KILLS = ("head", "job"), int(os.environ.get("SLURM_KILLS") or 2)
FIGURE = "fig04" if KILLS > 2 else FEW  # each job plans again before it begins
PATIENCE = 1200  # seconds
# The project's profile, and one that a lab has for all its workflows.
OWN, LAB = ("--workflow-profile", "profiles/slurm"), ("--profile", "lab")
STOCK = "executor: slurm\njobs: 20\nretries: 1\ndefault-resources: {slurm_partition: main}\n"
# So that nobody waits for a queue that is on this machine.
QUICK = (
    *("--slurm-init-seconds-before-status-checks", "2", "--seconds-between-status-checks", "2"),
    *("--slurm-no-account", "--latency-wait", "5", "--slurm-status-command", "squeue"),
    *("--retries", str(KILLS)),
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    absent = missing() or (None if PLUGINS.is_dir() else "Snakemake's plugin for SLURM is missing")
    if absent:
        pytest.skip(f"no SLURM cluster: {absent}; make test-slurm installs what it takes")
    with running(tmp_path_factory.mktemp("slurm") / "cluster") as found:
        yield found


@dataclass
class Build:
    """Builds of a figure on the cluster, in a copy of the project."""

    project: Project
    cluster: Cluster
    output: Path
    known: dict[str, bytes] = field(default_factory=dict)

    def start(self, *profile):
        """Start a build under a profile; what it prints is kept."""
        folder = self.project.folder
        command = self.project.command(*profile, *QUICK, targets=("figures",))
        paths = {"PYTHONPATH": f"{folder / 'workflow'}:{PLUGINS}"}
        how = {"cwd": folder, "env": self.cluster.environment | paths, "start_new_session": True}
        with self.output.open("ab") as output:
            return Popen(command, **how, stdout=output, stderr=STDOUT)

    def status(self, process, seconds):
        """Status of a build after so many seconds, or None; keep each record as it first was."""
        end = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < end:
            self.known = self.records() | self.known
            time.sleep(0.1)
        return process.poll()

    @cached_property
    def jobs(self):
        chosen = plan("smoke", self.project.folder / "config", seed=SEED, figures=[FIGURE])
        return list(chosen.site.needed(chosen.targets()))

    def records(self):
        """Bytes of the records of all results that are there, by folder."""
        files = {job.folder: self.project.folder / job.paths.record for job in self.jobs}
        return {name: file.read_bytes() for name, file in files.items() if file.exists()}

    def clear(self, profile):
        """Remove measurements, of which a lab's profile makes one, and figure, and jobs of builds
        that were killed."""
        self.cluster.clear()
        measured = [job.folder for job in self.jobs if job.stage == "measure.measure"]
        for place in ("figures/smoke", *measured[-1 if profile is LAB else 0 :]):
            shutil.rmtree(self.project.folder / place, ignore_errors=True)
        self.known = self.records()

    def compare(self, alone):
        """No result was built twice, and all have the bytes of a build on this machine alone."""
        assert self.known.items() <= self.records().items()
        for job in self.jobs:
            for name in manifest.read(alone.folder / job.manifest).files:
                here, there = (each.folder / job.folder / name for each in (self.project, alone))
                assert filecmp.cmp(here, there, shallow=False), here


@pytest.fixture
def alone(cluster, tmp_path):
    """The figure, built on this machine alone."""
    project = Project.copy(tmp_path / "alone", figures=FIGURE)
    project.build(targets=("figures",))
    return project


@pytest.fixture
def build(cluster, tmp_path):
    project = Project.copy(tmp_path / "project", figures=FIGURE)
    yield Build(project, cluster, tmp_path / "output.txt")
    for process in at_work(project, "snakemake"):
        process.kill()
    cluster.clear()


def at_work(project, word):
    """Processes in a copy of the project, with a word on their command line."""
    for process in psutil.process_iter(["cmdline"]):
        with suppress(psutil.Error):
            command = " ".join(process.info["cmdline"] or [])
            if word in command and process.cwd() == str(project.folder):
                yield process


def test_killed_builds_end_with_the_bytes_of_one_machine_under_each_profile(build, alone):
    """Killed are Snakemake, whose jobs go on, and a job."""
    (build.project.folder / "lab").mkdir()
    (build.project.folder / "lab/config.yaml").write_text(STOCK)
    killed = []
    for profile, most in cycle(((OWN, KILLS - KILLS // 3), (LAB, KILLS))):
        build.clear(profile)
        process = build.start(*profile)
        while len(killed) < most and build.status(process, random.uniform(2, 10)) is None:
            kind, jobs = KINDS[len(killed) % 2], at_work(build.project, "ptq_dynamics.engine.run")
            with suppress(psutil.Error, IndexError):  # no job is running
                about = random.choice([*jobs]).environ()
                if kind == "head":
                    process.kill()
                    process = build.start(*profile)
                else:
                    how = random.choice([[], ["--signal=KILL", "--full"]])
                    build.cluster.run("scancel", "--quiet", *how, about["SLURM_JOB_ID"])
                killed.append(kind)
                print(f"killed: {' '.join(killed)}", flush=True)
        assert build.status(process, PATIENCE) == 0, build.output.read_text()[-3000:]
        build.compare(alone)
        if len(killed) == KILLS and profile is LAB:
            break
    # With nothing to do, nothing is sent.
    assert build.start(*OWN).wait() == 0
    build.compare(alone)
