"""Builds on a real SLURM cluster of two virtual nodes, which this machine is for a while.

`make test-slurm` installs what it takes. Some of SLURM's own waits are of minutes: those tests run
where SLURM_PATIENCE is set, as it does.
"""

import os
import random
import re
import shutil
import signal
import sys
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import STDOUT, Popen, run

import psutil
import pytest
import yaml
from project import SEED, Project
from ptq_dynamics.jobs import manifest
from slurm_cluster import NODES, Cluster, Unavailable, require, running
from support import ROOT, plan

PLUGINS = Path(sys.prefix) / "slurm"
TRUNK = "results/smoke/train/constant-3e-3/seed-101"
PATIENCE = 600
KILLS = int(os.environ.get("SLURM_KILLS") or 0)
SITE = {"poll_seconds": 2, "pack_minutes": 0.3, "longest_minutes": 60, "notice_seconds": 60}
LOGS = ".snakemake/slurm_logs"
# A run saves its state after so many seconds, at the earliest.
STATE_AFTER = 6
STATES = "results/smoke/train/*/*/.work-*/scratch/state-*"

patient = pytest.mark.skipif(
    not os.environ.get("SLURM_PATIENCE"),
    reason="SLURM waits for minutes here; make test-slurm runs it",
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    try:
        require()
        if not PLUGINS.is_dir():
            raise Unavailable("Snakemake's plugin for SLURM is missing")
    except Unavailable as reason:
        pytest.skip(f"no SLURM cluster: {reason}; make test-slurm installs what it takes")
    with running(tmp_path_factory.mktemp("slurm") / "cluster") as found:
        yield found


@dataclass
class Build:
    """Builds of figure 4 on the cluster, in a copy of the project."""

    project: Project
    cluster: Cluster

    def start(self, **site):
        """Start a build; what it prints is kept."""
        self.configure(**site)
        with self.said.open("ab") as said:
            return Popen(
                self.project.on_cluster("--latency-wait", "5"),
                cwd=self.project.folder,
                env=self.environment,
                stdout=said,
                stderr=STDOUT,
                start_new_session=True,
            )

    def configure(self, **site):
        path = self.project.folder / "profiles/slurm/site.yaml"
        known = yaml.safe_load((ROOT / "profiles/slurm/site.yaml").read_text())
        path.write_text(yaml.safe_dump(known | SITE | site))

    @property
    def environment(self):
        own = self.project.folder / "workflow"
        return {**self.cluster.environment, "PYTHONPATH": f"{own}:{PLUGINS}"}

    @property
    def said(self):
        return self.project.folder / "said.txt"

    @property
    def text(self):
        return self.said.read_text()

    def logs(self):
        """What all SLURM jobs printed."""
        files = (self.project.folder / LOGS).glob("*.log")
        return "".join(path.read_text() for path in files)

    def end(self, process):
        """Wait for the end of a build that succeeds."""
        assert process.wait(PATIENCE) == 0, self.text[-3000:]

    def until(self, holds, process=None):
        """Wait until something holds."""
        end = time.monotonic() + PATIENCE
        while not holds():
            assert process is None or process.poll() is None, self.text[-3000:]
            assert time.monotonic() < end, f"{self.text[-2000:]}\n{self.logs()[-2000:]}"
            time.sleep(0.1)

    def compare(self, built):
        """All that figure 4 is made of has the bytes of a build on this machine alone."""
        chosen = plan("smoke", built.folder / "config", seed=SEED, figures=["fig04"])
        jobs = list(chosen.site.needed(chosen.last()))
        differing = []
        for job in jobs:
            names = [*manifest.read(built.folder / job.manifest).files, job.paths.manifest.name]
            for name in names:
                path = f"{job.folder}/{name}"
                here, there = self.project.folder / path, built.folder / path
                if not here.exists() or here.read_bytes() != there.read_bytes():
                    differing.append(path)
        assert len(jobs) > 25 and not differing, differing[:5]

    def executions(self):
        """How often each job came to its end."""
        return Counter(re.findall(r"^(\S+ .*): done in", self.logs(), flags=re.M))


@pytest.fixture
def build(cluster, tmp_path):
    made = Build(Project.copy(tmp_path / "project", figures="fig04"), cluster)
    yield made
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if "snakemake" in " ".join(command[:2]) and process.cwd() == str(made.project.folder):
            process.kill()
    run(["scancel", "--me"], env=cluster.environment, check=False)


def test_a_killed_build_goes_on_with_what_it_has_sent(build, built):
    """Snakemake is killed while a job runs, and while others wait; nothing is done twice, and all
    has the bytes of a build on one machine."""
    first = build.start()
    build.until(lambda: "step" in build.logs(), first)
    with held(build):
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        before = {number for number, _ in build.cluster.queue()}
        assert before
        second = build.start()
        build.until(lambda: "watched, not sent again" in build.text, second)
        # The trunk is still that of the first build.
        assert {number for number, _ in build.cluster.queue()} <= before
        assert not (build.project.folder / TRUNK / "manifest.json").exists()
    # The controller is away for a while.
    build.until(lambda: "Finished" in build.text or "done" in build.text, second)
    build.cluster.kill_controller()
    time.sleep(5)
    build.cluster.start_controller()
    build.end(second)
    build.compare(built)
    twice = {job: count for job, count in build.executions().items() if count != 1}
    assert not twice and build.executions(), twice
    calls = sum(map(int, re.findall(r"(\d+) calls of sbatch", build.text)))
    print(
        f"to be seen: {sum(build.executions().values())} jobs in {calls} calls of sbatch or fewer"
    )


def test_a_cancelled_job_ends_its_branch_alone(build):
    """One who cancels a job does not want it again; other branches go on, and the build fails."""
    # A SLURM job for each job, so that what is cancelled is one branch.
    process = build.start(pack_minutes=0.01)
    build.until(lambda: "going on" in build.logs() or "step" in build.logs(), process)
    build.until(lambda: (build.project.folder / TRUNK / "manifest.json").exists(), process)
    build.until(lambda: any(state == "PENDING" for _, state in build.cluster.queue()), process)
    waiting = [number for number, state in build.cluster.queue() if state == "PENDING"]
    build.cluster.run("scancel", waiting[-1])
    assert process.wait(PATIENCE) == 1
    assert f"its SLURM job {waiting[-1]} has ended: CANCELLED" in build.text, build.text[-3000:]
    assert not build.cluster.queue()
    assert len(build.executions()) > 5


@patient
def test_a_run_out_of_time_saves_is_queued_again_and_ends_with_the_same_bits(build, built):
    process = build.start(longest_minutes=1, notice_seconds=50)
    build.until(lambda: "step" in build.logs(), process)
    with held(build) as jobs:
        build.until(lambda: any(map(is_called, jobs)), process)
    build.until(lambda: "goes on from there" in build.logs(), process)
    # Later builds have all the time that they need; this one waits for SLURM, which takes minutes.
    os.killpg(process.pid, signal.SIGINT)
    process.wait()
    assert not build.cluster.queue()
    build.end(build.start())
    assert "going on from step" in build.logs()
    build.compare(built)


@patient
def test_jobs_that_are_preempted_or_queued_again_come_out_alike(build, built):
    process = build.start()
    build.until(lambda: "step" in build.logs(), process)
    with held(build):
        time.sleep(STATE_AFTER)
    build.until(lambda: any(build.project.folder.glob(STATES)), process)
    with held(build):
        (number, *_) = [number for number, state in build.cluster.queue() if state == "RUNNING"]
        build.cluster.run("scontrol", "requeue", number)
    build.until(lambda: "PENDING" in dict(build.cluster.queue()).values(), process)
    build.end(process)
    build.compare(built)
    assert "going on from step" in build.logs()


@patient
def test_the_old_process_of_a_lost_node_does_no_harm(build, built):
    """Its node is lost to the controller and the job begins anew elsewhere, while it runs on."""
    process = build.start()
    build.until(lambda: "step" in build.logs(), process)
    (node,) = [
        name for name, state in build.cluster.states().items() if state.startswith(("mix", "alloc"))
    ]
    build.cluster.kill_node(node)
    try:
        build.end(process)
    finally:
        build.cluster.start_node(node)
        build.until(lambda: build.cluster.states() == dict.fromkeys(NODES, "idle"))
    build.compare(built)


def a_job(build, moments):
    """A process that runs a job, as the kernel does when memory is short."""
    if found := jobs_at_work(build):
        moments.choice(found).kill()


@contextmanager
def held(build):
    """Jobs at work stand still for a while; at scale smoke they would else come to their end."""
    jobs = jobs_at_work(build)
    assert jobs
    for job in jobs:
        job.suspend()
    try:
        yield jobs
    finally:
        for job in jobs:
            with suppress(psutil.NoSuchProcess):
                job.resume()


def is_called(job):
    """Whether a process that stands still has been told that its time is nearly up."""
    status = Path(f"/proc/{job.pid}/status").read_text()
    (waiting,) = re.findall(r"^ShdPnd:\s*(\w+)$", status, flags=re.M)
    return bool(int(waiting, 16) >> (signal.SIGUSR1 - 1) & 1)


def jobs_at_work(build):
    return [each for each in psutil.process_iter(["cmdline"]) if is_job(each, build)]


def is_job(process, build):
    try:
        command = process.info["cmdline"] or []
        return "ptq_dynamics.jobs.run" in command and process.cwd() == str(build.project.folder)
    except psutil.Error:
        return False


def the_controller(build, moments):
    build.cluster.kill_controller()
    time.sleep(moments.uniform(0, 5))
    build.cluster.start_controller()


def a_node(build, moments):
    """Its daemons; what runs there runs on."""
    node = moments.choice(NODES)
    build.cluster.kill_node(node)
    time.sleep(moments.uniform(0, 5))
    build.cluster.start_node(node)


HARMS = (a_job, the_controller, a_node)


@pytest.mark.skipif(not KILLS, reason="make chaos-slurm runs it")
def test_random_kills(build, built):
    """Snakemake, jobs, nodes and the controller are killed at random; what comes out has the bytes
    of a build on one machine."""
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    print(f"CHAOS_SEED={seed}", flush=True)
    moments = random.Random(seed)
    done = 0
    process = build.start()
    while done < KILLS:
        time.sleep(moments.uniform(2, 12))
        if process.poll() is not None:
            assert process.returncode in (0, 1), build.text[-3000:]
            if process.returncode == 0:
                build.compare(built)
                for place in ("results/smoke", "figures/smoke"):
                    shutil.rmtree(build.project.folder / place)
            process = build.start()
            continue
        done += 1
        if done % 2:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            print(f"{done} of {KILLS}: snakemake", flush=True)
            process = build.start()
        else:
            harm = moments.choice(HARMS)
            print(f"{done} of {KILLS}: {harm.__name__}", flush=True)
            harm(build, moments)
    # A job that was killed too often, or whose node was lost, is tried again by the same command.
    for _ in range(3):
        if process.wait(PATIENCE) == 0:
            break
        process = build.start()
    build.end(process)
    build.compare(built)
