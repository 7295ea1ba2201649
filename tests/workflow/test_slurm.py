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
from executions import Journal
from project import SEED, SHOWN, Project
from ptq_dynamics.engine import manifest
from slurm_cluster import NODES, PARTITIONS, Cluster, Unavailable, require, running
from support import ROOT, edit_yaml, plan

PLUGINS = Path(sys.prefix) / "slurm"
TRUNK = "results/smoke/train/constant-3e-3/seed-101"
PATIENCE = 1200
KILLS = int(os.environ.get("SLURM_KILLS") or 0)
SITE = {"poll_seconds": 2, "pack_minutes": 0.3, "longest_minutes": 60, "notice_seconds": 60}
LOGS = ".snakemake/slurm_logs"
LEDGER = ".snakemake/ptq-dynamics-slurm"
# GiB of a process as the scale has it, of which half as much is asked for in addition.
LITTLE_MEMORY = 0.2
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
    journal: Journal
    said: Path

    def start(self, targets=(), **site):
        """Start a build; what it prints is kept."""
        self.configure(**site)
        with self.said.open("ab") as said:
            return Popen(
                self.project.on_cluster("--latency-wait", "5", "--", *targets),
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
        """All that figure 4 is made of has the bytes of a build on this machine alone, and nothing
        of it was made twice, or by two at once."""
        chosen = plan("smoke", built.folder / "config", seed=SEED, figures=["fig04"])
        jobs = list(chosen.site.needed(chosen.last()))
        lost, differing = [], []
        for job in jobs:
            names = [*manifest.read(built.folder / job.manifest).files, job.paths.manifest.name]
            for name in names:
                path = f"{job.folder}/{name}"
                here, there = self.project.folder / path, built.folder / path
                if not here.exists():
                    lost.append(path)
                elif here.read_bytes() != there.read_bytes():
                    differing.append(path)
        assert len(jobs) > 25 and not lost and not differing, (lost[:5], differing[:5])
        count = self.journal.count()
        assert not count.wrong and count.done.keys() >= {job.manifest for job in jobs}, count.wrong


def build_in(folder, cluster, notes):
    """Builds in a fresh copy of the project; what is noted of them lies elsewhere."""
    project = Project.copy(folder, figures="fig04")
    journal = Journal.of(folder, notes / "executions")
    return Build(project, cluster, journal, notes / "said.txt")


@pytest.fixture
def build(cluster, tmp_path):
    made = build_in(tmp_path / "project", cluster, tmp_path)
    yield made
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if "snakemake" in " ".join(command[:3]) and process.cwd() == str(made.project.folder):
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
    time.sleep(60 if os.environ.get("SLURM_PATIENCE") else 5)
    build.cluster.start_controller()
    build.end(second)
    build.compare(built)
    count = build.journal.count()
    assert count.total == len(count.done), count
    calls = sum(map(int, re.findall(r"(\d+) calls of sbatch", build.text)))
    print(f"{SHOWN}{count.total} jobs in {calls} calls of sbatch or fewer")


def test_a_cancelled_job_ends_its_branch_alone(build):
    """One who cancels a job does not want it again; other branches go on, and the build fails."""
    # A SLURM job for each job, so that what is cancelled is one branch.
    chosen = plan("smoke", build.project.folder / "config", seed=SEED, figures=["fig04"])
    folders = tuple(f"results/smoke/evaluate/{run}/" for run in ("constant-3e-3", "rainbow-036"))
    every = chosen.site.needed(chosen.last())
    about = [job.manifest for job in every if job.folder.startswith(folders)]
    process = build.start(targets=about, pack_minutes=0.01)
    build.until(lambda: "going on" in build.logs() or "step" in build.logs(), process)
    build.until(lambda: (build.project.folder / TRUNK / "manifest.json").exists(), process)
    build.until(lambda: any(state == "PENDING" for _, state in build.cluster.queue()), process)
    waiting = [number for number, state in build.cluster.queue() if state == "PENDING"]
    build.cluster.run("scancel", waiting[-1])
    assert process.wait(PATIENCE) == 1
    assert f"its SLURM job {waiting[-1]} has ended: CANCELLED" in build.text, build.text[-3000:]
    assert not build.cluster.queue()
    assert len(build.journal.count().done) > 3


@contextmanager
def small(folder, size):
    """A file system of its own at a folder, which is full soon."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if run(command, check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield
    finally:
        # Whatever still looks at it.
        run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_ends_its_branch_alone(build, built):
    """The results of a run do not fit; others are made, and it is too once there is room."""
    run_of_branch = "rainbow-036"
    place = build.project.folder / f"results/smoke/train/{run_of_branch}"
    with small(place, "48k"):
        process = build.start()
        assert process.wait(PATIENCE) == 1, build.text[-3000:]
        assert not build.cluster.queue()
        # As it happens, and at the end.
        errors = [line for line in build.text.splitlines() if line.startswith("error: ")]
        said = f"train.train {run_of_branch} seed {SEED}: the disk is full; free"
        assert errors and all(said in line for line in errors), errors
        assert "tried again" not in build.text and "Traceback" not in build.text
        chosen = plan("smoke", built.folder / "config", seed=SEED, figures=["fig04"])
        jobs = list(chosen.site.needed(chosen.last()))
        there = {job.manifest for job in jobs if (build.project.folder / job.manifest).exists()}
        missing = {job.manifest for job in jobs} - there
        # All that is of this run, and the figure.
        assert all(run_of_branch in name or name.startswith("figures/") for name in missing)
        assert f"results/smoke/train/{run_of_branch}/seed-{SEED}/manifest.json" in missing
        assert len(there) > 20
    build.end(build.start())
    build.compare(built)


def test_a_disk_that_is_full_for_all_ends_the_build(cluster, built, tmp_path):
    """It says so, does not wait for ever, and goes on once there is room."""
    place = tmp_path / "small"
    with small(place, "200m"):
        build = build_in(place / "project", cluster, tmp_path)
        project = build.project
        process = build.start()
        build.until(lambda: (project.folder / TRUNK / "manifest.json").exists(), process)
        filler = place / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 12))
        assert process.wait(PATIENCE) == 1, build.text[-3000:]
        assert "full" in build.text or "No space left" in build.text, build.text[-3000:]
        build.until(lambda: not build.cluster.queue())
        filler.unlink()
        build.end(build.start())
        build.compare(built)


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
@pytest.mark.parametrize("how", ["preempted", "queued again"])
def test_jobs_that_are_preempted_or_queued_again_come_out_alike(build, built, how):
    process = build.start()
    build.until(lambda: "step" in build.logs(), process)
    with held(build):
        time.sleep(STATE_AFTER)
    build.until(lambda: any(build.project.folder.glob(STATES)), process)
    with held(build):
        (number, *_) = [number for number, state in build.cluster.queue() if state == "RUNNING"]
        if how == "preempted":
            # Both nodes are wanted by someone who has priority.
            urgent = ["--partition", PARTITIONS[1], "--nodes", "2", "--wrap", "sleep 1"]
            build.cluster.run("sbatch", "--chdir", "/tmp", "--output", "/dev/null", *urgent)
        else:
            build.cluster.run("scontrol", "requeue", number)
    build.until(lambda: dict(build.cluster.queue()).get(number) == "PENDING", process)
    build.end(process)
    build.compare(built)
    assert "going on from step" in build.logs()


@patient
def test_a_job_with_too_little_memory_is_tried_again_with_more(build, built):
    """SLURM ends it, as it looks every two seconds; the next try has twice as much."""
    scale = build.project.folder / "config/scales/smoke.yaml"
    edit_yaml(scale, lambda found: found["resources"]["memory"].update(process=LITTLE_MEMORY))
    target = f"{TRUNK}/manifest.json"
    process = build.start(targets=[target])
    build.end(process)
    said = [line for line in build.text.splitlines() if line.startswith("error: ")]
    assert said and all("it is tried again" in line for line in said), build.text[-3000:]
    assert any("memory" in line.lower() for line in said), said
    sent = ",".join(path.name for path in (build.project.folder / LEDGER).glob("ptq-*"))
    asked = build.cluster.run("sacct", "-X", "-n", "-P", "-o", "ReqMem", "--name", sent).split()
    assert {*asked} >= {"512M", "1G"}, asked
    assert (build.project.folder / target).read_bytes() == (built.folder / target).read_bytes()
    assert not build.journal.count().wrong


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
        return "ptq_dynamics.engine.run" in command and process.cwd() == str(build.project.folder)
    except psutil.Error:
        return False


# Kills, each of which says whether there was something to kill.


def the_build(build, process, moments):
    """Snakemake; what it has sent goes on."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return True


def a_job(build, process, moments):
    """A process of a job that is at work, as the kernel does when memory is short: who runs a pack,
    or the job itself, or the one that waits for it."""
    while process.poll() is None:
        if build.journal.at_work():
            time.sleep(moments.uniform(0, 1))
            found = sorted(processes_of_jobs(build), key=lambda each: each.pid)
            with suppress(psutil.NoSuchProcess):
                if found:
                    moments.choice(found).kill()
                    return True
        time.sleep(0.05)
    return False


def the_controller(build, process, moments):
    """For some seconds."""
    build.cluster.kill_controller()
    time.sleep(moments.uniform(0, 5))
    build.cluster.start_controller()
    return True


def a_node(build, process, moments):
    """The daemons of one where something runs; that runs on."""
    while process.poll() is None:
        busy = sorted(
            node
            for node, state in build.cluster.states().items()
            if state.startswith(("mix", "alloc"))
        )
        if busy:
            node = moments.choice(busy)
            build.cluster.kill_node(node)
            time.sleep(moments.uniform(0, 5))
            build.cluster.start_node(node)
            return True
        time.sleep(0.2)
    return False


HARMS = (the_build, a_job, a_node, the_controller)


def processes_of_jobs(build):
    """Those that run packs, jobs that these started, and children of warm processes."""
    for process in psutil.process_iter(["cmdline"]):
        with suppress(psutil.Error):
            command = process.info["cmdline"] or []
            named = {"ptq_dynamics.cluster.node", "ptq_dynamics.engine.run"} & {*command}
            warm = "ptq_dynamics.engine.warm.server"
            parent = process.parent() if warm in command else None
            is_child = parent is not None and warm in parent.cmdline()
            if (named or is_child) and process.cwd() == str(build.project.folder):
                yield process


@pytest.mark.skipif(not KILLS, reason="make chaos-slurm runs it")
def test_random_kills(build, built):
    """Snakemake, jobs, nodes and the controller are killed at random; what comes out has the bytes
    of a build on one machine, and nothing of it was made twice, or by two at once."""
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    print(f"CHAOS_SEED={seed}", flush=True)
    moments = random.Random(seed)
    harms = [HARMS[number % len(HARMS)] for number in range(KILLS)]
    moments.shuffle(harms)
    killed, builds = Counter(), 0
    process = build.start()
    while harms:
        time.sleep(moments.uniform(2, 12))
        if process.poll() is None and harms[-1](build, process, moments):
            kind = harms.pop().__name__.replace("_", " ")
            killed[kind] += 1
            print(f"{killed.total()} of {KILLS}: {kind}", flush=True)
        if process.poll() is None:
            continue
        assert process.returncode in (0, 1, -signal.SIGKILL), build.text[-3000:]
        if process.returncode == 0:
            builds += 1
            build.compare(built)
            build.journal.removed()
            for place in ("results/smoke", "figures/smoke"):
                shutil.rmtree(build.project.folder / place)
        process = build.start()
    # A job that was killed too often is tried again by the same command.
    for _ in range(3):
        if process.wait(PATIENCE) == 0:
            break
        process = build.start()
    build.end(process)
    build.compare(built)
    kinds = ", ".join(f"{count} of {kind}" for kind, count in killed.items())
    print(
        f"{SHOWN}{KILLS} kills ({kinds}) of {builds + 1} builds: {build.journal.count()}, none "
        "lost or different at the end"
    )
