"""Random kills of a build, each followed by the same command alone.

Kills Snakemake, one of its jobs, or all of the group at random moments; the same command has to go
on, whatever still lives, and what comes out has to be equal to an undisturbed build. Here
a few kills; `make chaos` does 30. CHAOS_SEED=N gives the moments of a failed test again.
"""

import os
import random
import shutil
import signal
import time
from contextlib import suppress
from subprocess import STDOUT

import psutil
from project import Project, jobs_of
from ptq_dynamics.engine import manifest
from ptq_dynamics.figures.captions import PAGE
from ptq_dynamics.figures.contact import SHEET
from support import artifacts, differing, wait_until

KILLS = int(os.environ.get("KILLS") or 3)
PLACES = ("figures/smoke", "results/smoke")
PATIENCE = 900
FIGURE = "fig04"


def start(project):
    """A build in a group of its own; what it prints is kept."""
    command = project.command(targets=("figures",))
    with (project.folder / "said.txt").open("wb") as said:
        return project.start(command, stdout=said, stderr=STDOUT, start_new_session=True)


def only_snakemake(process, _):
    """Its jobs live on."""
    process.kill()
    process.wait()
    return True


def one_job(process, moments):
    """Or the process that a job waits in for the warm one; the others go on."""
    while process.poll() is None:
        with suppress(psutil.NoSuchProcess):
            if found := jobs_of(process.pid):
                moments.choice(found).kill()
                process.wait(PATIENCE)
                return True
        time.sleep(0.01)
    return False


def whole_group(process, _):
    """As a closed terminal does at its worst."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return True


KINDS = [only_snakemake, one_job, whole_group]


def test_a_build_that_is_killed_at_random_ends_with_the_bytes_of_an_undisturbed_one(
    built, tmp_path
):
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    print(f"CHAOS_SEED={seed}", flush=True)
    moments = random.Random(seed)
    project = Project.copy(tmp_path / "project", figures=FIGURE)
    wanted = closure(built)
    killed, processes = [], []
    try:
        while True:
            process = start(project)
            processes.append(process)
            kind = KINDS[(seed + len(killed)) % len(KINDS)] if len(killed) < KILLS else None
            under_way = kind is not None and is_under_way(project, process, moments)
            if under_way and kind(process, moments):
                killed.append(kind.__name__)
                print(f"{len(killed)} of {KILLS}: {killed[-1]}", flush=True)
                continue
            status = process.wait(PATIENCE)
            said = (project.folder / "said.txt").read_text()
            assert status == 0, f"seed {seed}, after {killed}: {said[-3000:]}"
            compare(wanted, project, f"seed {seed}, after {killed}")
            if len(killed) == KILLS:
                break
            for place in PLACES:
                shutil.rmtree(project.folder / place)
    finally:
        if processes[-1].poll() is None:
            whole_group(processes[-1], moments)


def closure(built):
    """All that the figure is made of, and itself, as it came out undisturbed."""
    plan = built.plan
    jobs = list(plan.site.needed([plan.figures.figure(FIGURE)]))
    assert {job.stage for job in jobs} >= {"train.train", "measure.measure"}
    found = {}
    for job in jobs:
        names = [*manifest.read(built.folder / job.manifest).files, job.paths.manifest.name]
        paths = [f"{job.folder}/{name}" for name in (*names, job.paths.spec.name)]
        found |= {path: (built.folder / path).read_bytes() for path in paths}
    return found


def compare(wanted, project, when):
    found = {
        f"{place}/{name}": data
        for place in PLACES
        for name, data in artifacts(project.folder / place).items()
    }
    # The page of captions and its sheet are of all figures that are there.
    for name in (PAGE, SHEET):
        found.pop(f"{PLACES[0]}/{name}", None)
    changed = differing(wanted, found)
    assert wanted and not changed, f"{when}: {changed[:5]}"


def is_under_way(project, process, moments):
    """Wait until a random share of the build is done; False when it has come to its end."""
    wanted = manifests(project) + moments.randint(0, 8)
    wait_until(
        lambda: manifests(project) >= wanted or process.poll() is not None,
        "the build does not go on",
        PATIENCE,
    )
    time.sleep(moments.uniform(0, 2))
    return process.poll() is None


def manifests(project):
    """How many results are there; work folders come and go."""
    count = 0
    for _, folders, files in os.walk(project.folder / "results"):
        folders[:] = [name for name in folders if not name.startswith(".")]
        count += "manifest.json" in files
    return count
