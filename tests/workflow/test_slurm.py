"""Builds on a real SLURM cluster of two virtual nodes, which this machine is for a while, by
Snakemake's own executor and profiles/slurm.

`make test-slurm` installs what it takes.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import STDOUT, Popen, run

import psutil
import pytest
from project import SEED, Project
from ptq_dynamics.engine import manifest
from slurm_cluster import Cluster, missing, running
from support import plan

PLUGINS = Path(os.environ.get("SLURM_PLUGINS") or Path(sys.prefix) / "slurm")
TRUNK = f"results/smoke/train/constant-3e-3/seed-{SEED}"
PATIENCE = 1200  # seconds
# The project's profile, and one that a lab has for all its workflows.
OWN, LAB = ("--workflow-profile", "profiles/slurm"), ("--profile", "lab")
STOCK = "executor: slurm\njobs: 20\nretries: 1\ndefault-resources: {slurm_partition: main}\n"
# So that nobody waits for a queue that is on this machine.
QUICK = (
    *("--slurm-init-seconds-before-status-checks", "2", "--seconds-between-status-checks", "2"),
    *("--slurm-no-account", "--latency-wait", "5", "--slurm-status-command", "squeue"),
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
    """Builds of figure 4 on the cluster, in a copy of the project."""

    project: Project
    cluster: Cluster
    output: Path

    def start(self, *profile):
        """Start a build under a profile; what it prints is kept."""
        own = self.project.folder / "workflow"
        with self.output.open("ab") as output:
            return Popen(
                self.project.on_cluster(*profile, *QUICK),
                cwd=self.project.folder,
                env={**self.cluster.environment, "PYTHONPATH": f"{own}:{PLUGINS}"},
                stdout=output,
                stderr=STDOUT,
                start_new_session=True,
            )

    def end(self, process):
        """Wait for the end of a build that succeeds."""
        assert process.wait(PATIENCE) == 0, self.output.read_text()[-3000:]

    def until(self, holds, process):
        """Wait until something holds, while the build goes on."""
        end = time.monotonic() + PATIENCE
        while not holds():
            assert process.poll() is None and time.monotonic() < end, self.output.read_text()[
                -3000:
            ]
            time.sleep(0.1)

    @property
    def jobs(self):
        chosen = plan("smoke", self.project.folder / "config", seed=SEED, figures=["fig04"])
        return list(chosen.site.needed(chosen.last()))

    def records(self):
        """Bytes of the records of all results that are there, by folder."""
        files = {job.folder: self.project.folder / job.paths.record for job in self.jobs}
        return {name: file.read_bytes() for name, file in files.items() if file.exists()}

    def compare(self, built):
        """All that figure 4 is made of has the bytes of a build on this machine alone."""
        jobs, differing = self.jobs, []
        for job in jobs:
            found = manifest.read(built.folder / job.manifest)
            for path in (f"{job.folder}/{name}" for name in found.files):
                here, there = self.project.folder / path, built.folder / path
                if not here.exists() or here.read_bytes() != there.read_bytes():
                    differing.append(path)
        assert len(jobs) > 10 and not differing, differing[:5]


@pytest.fixture
def build(cluster, tmp_path):
    project = Project.copy(tmp_path / "project", figures="fig04")
    yield Build(project, cluster, tmp_path / "output.txt")
    for process in at_work(project, "snakemake"):
        process.kill()
    run(["scancel", "--user=root"], env=cluster.environment, check=False)


def at_work(project, word):
    """Processes in a copy of the project, with a word on their command line."""
    for process in psutil.process_iter(["cmdline"]):
        with suppress(psutil.Error):
            command = " ".join(process.info["cmdline"] or [])
            if word in command and process.cwd() == str(project.folder):
                yield process


def test_a_killed_build_and_a_killed_job_go_on_to_equal_bytes(build, built):
    """Snakemake is killed while jobs run, and started again with a lab's profile alone: jobs that
    were submitted go on, and no result is built twice; a job that is killed is tried again; and all
    results have the bytes of a build on one machine."""
    (build.project.folder / "lab").mkdir()
    (build.project.folder / "lab/config.yaml").write_text(STOCK)
    first = build.start(*OWN)
    trunk = build.project.folder / TRUNK
    build.until(lambda: list(trunk.glob(".work*")), first)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert build.cluster.queue()
    before = build.records()
    second, job = build.start(*LAB), "ptq_dynamics.engine.run"
    build.until(lambda: build.records().keys() > before.keys(), second)
    build.until(lambda: any(at_work(build.project, job)), second)
    for each in at_work(build.project, job):
        with suppress(psutil.Error):
            each.kill()
    build.end(second)
    build.compare(built)
    after = build.records()
    assert all(after[folder] == record for folder, record in before.items())
    # With nothing to do, nothing is sent.
    build.end(build.start(*OWN))
    assert build.records() == after
