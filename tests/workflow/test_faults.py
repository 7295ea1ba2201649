"""Kills, damage and wrong names: nothing is lost, nothing half looks whole, one line says why."""

import contextlib
import os
import random
import re
import shutil
import signal
import sys
import time
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import psutil
import pytest
from project import SNAKEMAKE, Project, recorded_job, run_job
from ptq_dynamics.engine.paths import Paths
from ptq_dynamics.engine.signals import INTERRUPTED
from support import artifacts, copy_results, differing, job_file, visible

TRUNK = "results/smoke/train/constant-3e-3/seed-101"
KILLS = 6


def start(project, folder, job):
    """A job in a process group of its own."""
    return Popen(
        [sys.executable, "-m", "ptq_dynamics.engine.run", "--job", job_file(folder, job)],
        cwd=folder,
        env=project.variables(),
        stdout=DEVNULL,
        stderr=DEVNULL,
        start_new_session=True,
    )


def kill(process):
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def seed():
    """Where the moments of kills come from; FAULTS_SEED=N gives those of a failed test again."""
    value = int(os.environ.get("FAULTS_SEED") or random.SystemRandom().randrange(10**6))
    print(f"FAULTS_SEED={value}")
    return value


@pytest.fixture
def alone(built, tmp_path):
    """A folder with the corpus, in which the trunk can be trained again."""
    copy_results(built.folder, tmp_path, ["results/smoke/corpus/main"])
    return tmp_path


# Training that is killed

EAGER = """
import sys
from ptq_dynamics.train import train
from ptq_dynamics.engine.run import main
# A state after every update: a run of seconds has them as a run of days has.
train.Pace.state_is_due = lambda self: True
sys.exit(main())
"""


def test_a_run_that_is_killed_anywhere_ends_with_the_same_bits(built, alone, seed):
    """kill -9 at random moments of a run that saves its state after every update."""
    moments = random.Random(seed)
    job = recorded_job(built, TRUNK)
    command = [sys.executable, "-c", EAGER, "--job", job_file(alone, job)]
    checkpoints = alone / TRUNK
    steps, killed = [], 0
    for _ in range(40):
        process = Popen(
            command,
            cwd=alone,
            env=built.variables(),
            stdout=DEVNULL,
            stderr=PIPE,
            text=True,
            start_new_session=True,
        )
        if killed < KILLS:
            wait_for_a_new_state(process, checkpoints, steps[-1] if steps else -1)
            time.sleep(moments.uniform(0, 0.6))
            if process.poll() is None:
                kill(process)
                killed += 1
                steps.append(newest_state(checkpoints))
                assert not (alone / TRUNK / "manifest.json").exists()
                assert visible(alone / TRUNK) == {}, "a half result is to be seen"
                continue
        said = process.communicate()[1]
        assert process.returncode == 0, said[-2000:]
        break
    assert killed >= 3, f"seed {seed}: the run ended after {killed} kills at {steps}"
    assert "going on from step" in said, said
    assert steps == sorted(steps) and steps[-1] > 0, f"seed {seed}: no progress, {steps}"
    changed = differing(artifacts(built.folder / TRUNK), artifacts(alone / TRUNK))
    assert not changed, f"seed {seed}, killed at {steps}: {changed[:5]}"


def newest_state(folder):
    names = [path.name for path in folder.glob(".work-*/scratch/state-*.safetensors")]
    return max((int(name.split("-")[1].split(".")[0]) for name in names), default=-1)


def wait_for_a_new_state(process, folder, known, patience=90):
    end = time.monotonic() + patience
    while process.poll() is None and newest_state(folder) <= known:
        assert time.monotonic() < end, "training does not go on"
        time.sleep(0.01)


def test_a_run_that_is_killed_before_its_first_state_begins_again(built, alone, seed):
    moments = random.Random(seed)
    job = recorded_job(built, TRUNK)
    for _ in range(2):
        process = start(built, alone, job)
        end = time.monotonic() + 60
        while not list((alone / TRUNK).glob(".work-*/out/step-*")):
            assert process.poll() is None and time.monotonic() < end, "training does not begin"
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.5))
        kill(process)
        if (alone / TRUNK / "manifest.json").exists():
            break
        assert visible(alone / TRUNK) == {}
    done = run_job(built, alone, job)
    assert done.returncode == 0, done.stderr[-2000:]
    changed = differing(artifacts(built.folder / TRUNK), artifacts(alone / TRUNK))
    assert not changed, f"seed {seed}: {changed[:5]}"


def test_an_interrupt_is_one_line(built, alone):
    job = recorded_job(built, TRUNK)
    process = Popen(
        [sys.executable, "-m", "ptq_dynamics.engine.run", "--job", job_file(alone, job)],
        cwd=alone,
        env=built.variables(),
        stdout=DEVNULL,
        stderr=PIPE,
        text=True,
        start_new_session=True,
    )
    while not list((alone / TRUNK).glob(".work-*/out/step-*")):
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    said = process.communicate()[1]
    assert process.returncode == 1, said
    label, _, message = said.splitlines()[-1].rpartition(": ")
    assert label == "error: train.train constant-3e-3 seed 101"
    assert message == "interrupted; run the same command again to go on"
    assert "Traceback" not in said


# Snakemake that is killed


@pytest.fixture(scope="module")
def partial(built, tmp_path_factory):
    """A copy with the first half of the graph built: its trunk, but none of what follows."""
    project = Project.copy(tmp_path_factory.mktemp("killed") / "project", figures="fig04")
    copy_results(built.folder, project.folder, ["results/smoke/corpus/main", TRUNK])
    shutil.copytree(built.folder / ".snakemake", project.folder / ".snakemake")
    return project


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_snakemake_ends_the_build_with_a_line_for_each_job(partial, number):
    """Jobs that the warm process runs, or plain ones, as it comes."""
    process = Popen(
        partial.command(targets=("fig04",)),
        cwd=partial.folder,
        env=partial.variables(),
        stdout=DEVNULL,
        stderr=PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for(lambda: list((partial.folder / "results").rglob(".lease")), "no job begins")
    process.send_signal(number)
    said = process.communicate(timeout=40)[1]
    assert process.returncode == 1
    _, _, after = said.partition("the build is interrupted; run the same command again to go on\n")
    errors = [line for line in after.splitlines() if line.startswith("error: ")]
    assert errors and all(line.endswith(INTERRUPTED) for line in errors), said[-2000:]
    assert len(errors) == len(set(errors)) <= os.cpu_count()
    assert "Traceback" not in said and "Exception" not in said
    assert not list((partial.folder / "results").rglob(".lease"))


@pytest.mark.parametrize("moment", [0.0, 0.2, 0.5])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_snakemake_begins_is_one_line(partial, number, moment):
    """From when it has its handlers on."""
    process = Popen(
        [sys.executable, "-m", "ptq_dynamics.cli.snakemake", *partial.command("-n")[1:]],
        cwd=partial.folder,
        env=partial.variables(),
        stdout=DEVNULL,
        stderr=PIPE,
        text=True,
    )
    wait_for(lambda: process.poll() is not None or catches(process.pid), "it does not begin")
    time.sleep(moment)
    process.send_signal(number)
    said = process.communicate(timeout=40)[1]
    assert process.returncode == 1, said
    assert re.search(r"^interrupted.*; run the same command again\n\Z", said, re.M), said
    assert "Traceback" not in said


def catches(process):
    """Whether a process has a handler for SIGTERM, which Python itself has none for."""
    status = Path(f"/proc/{process}/status").read_text()
    return bool(int(re.search(r"^SigCgt:\s*(\w+)", status, re.M)[1], 16) >> signal.SIGTERM - 1 & 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("verb", ["snakemake -n", "status"])
def test_a_signal_while_a_build_is_planned_is_one_line(tmp_path, verb, number):
    project = Project.copy(tmp_path / "project", figures="fig04")
    command = [sys.executable, "-m", "ptq_dynamics.cli", "status", "--scale", "smoke"]
    if verb == "snakemake -n":
        command = project.command("-n", targets=("fig04",))
    # Whoever plans reads it, and gets no further.
    slow = project.folder / "config/runs.yaml"
    slow.unlink()
    os.mkfifo(slow)
    opened = []
    process = Popen(command, cwd=project.folder, env=project.variables(), stderr=PIPE, text=True)
    wait_for(lambda: process.poll() is not None or is_read(slow, opened), "nothing is planned")
    process.send_signal(number)
    said = process.communicate(timeout=40)[1]
    os.close(*opened)
    assert process.returncode == 1, said
    (line,) = [line for line in said.splitlines() if "interrupted" in line]
    assert line.endswith("run the same command again")
    assert "Traceback" not in said and said.endswith(f"{line}\n")


def test_builds_of_two_scales_at_once_do_not_disturb_each_other(tmp_path):
    """Here laptop is another name of smoke, so that both come out alike."""
    project = Project.copy(tmp_path / "project", figures="interpolation")
    scales = project.folder / "config/scales"
    shutil.copy2(scales / "smoke.yaml", scales / "laptop.yaml")
    command = project.command("--cores", "2", targets=("figures",))
    builds = [
        Popen(
            [word.replace("scale=smoke", f"scale={scale}") for word in command],
            cwd=project.folder,
            env=project.variables(),
            stdout=DEVNULL,
            stderr=PIPE,
            text=True,
        )
        for scale in ("smoke", "laptop")
    ]
    wait_for(lambda: under_way(project) == 2, "they do not run at once")
    for build in builds:
        said = build.communicate(timeout=600)[1]
        assert build.returncode == 0, said[-3000:]
    assert project.stale() == set()
    smoke, laptop = (
        {
            name: data
            for name, data in artifacts(project.folder / f"results/{scale}").items()
            if name.endswith(".safetensors")
        }
        for scale in ("smoke", "laptop")
    )
    assert smoke and not differing(smoke, laptop)


def under_way(project):
    """How many scales have a job that runs."""
    found = project.folder.glob("results/*/**/.lease")
    return len({path.relative_to(project.folder).parts[1] for path in found})


def is_read(pipe, opened):
    """Whether someone has opened a pipe; who does so is kept waiting until `opened` is closed."""
    try:
        opened.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


LOSSES = "results/smoke/evaluate/constant-3e-3/seed-101/fp/all"


@pytest.fixture
def measured(built, tmp_path):
    """A copy with the trunk and its losses."""
    project = Project.copy(tmp_path / "project", figures="fig04")
    copy_results(built.folder, project.folder, ["results/smoke/corpus/main", TRUNK, LOSSES])
    shutil.copytree(built.folder / ".snakemake", project.folder / ".snakemake")
    return project


def test_a_clock_that_was_set_back_stops_no_build(built, measured):
    """What the job reads is of tomorrow."""
    tomorrow = time.time() + 24 * 3600
    for place in ("results/smoke/corpus/main", TRUNK):
        os.utime(measured.folder / place / "manifest.json", (tomorrow, tomorrow))
    target = (f"{LOSSES}/manifest.json",)
    (measured.folder / target[0]).unlink()
    done = measured.snakemake(targets=target)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert not differing(artifacts(built.folder / LOSSES), artifacts(measured.folder / LOSSES))
    assert measured.planned(targets=target) == set()


@pytest.mark.parametrize("before", ["nothing", "another"])
def test_a_job_that_is_killed_once_it_has_published_has_its_result(built, measured, before):
    """Snakemake calls it failed, and would remove its manifest or put an earlier one back."""
    target = (f"{LOSSES}/manifest.json",)
    path = measured.folder / target[0]
    path.unlink()
    if before == "another":
        path.write_text("{}")
    process = Popen(
        measured.command(targets=target),
        cwd=measured.folder,
        env=measured.variables(),
        stdout=DEVNULL,
        stderr=PIPE,
        text=True,
    )
    job = []
    while not is_there(path):
        assert process.poll() is None, "the build ended before its job was seen"
        job = job or jobs_of(process.pid)
    os.kill(*job, signal.SIGKILL)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 1 and "1 failed" in said, said
    assert measured.planned(targets=target) == set(), said
    assert not differing(artifacts(built.folder / LOSSES), artifacts(measured.folder / LOSSES))


def is_there(path):
    """Whether a manifest has been published, for which another one moves away."""
    try:
        return path.stat().st_size > 2
    except FileNotFoundError:
        return False


def jobs_of(snakemake):
    """Processes that run jobs of a build."""
    found = []
    for each in psutil.Process(snakemake).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if each.cmdline()[1:3] == ["-m", "ptq_dynamics.engine.run"]:
                found.append(each.pid)
    return found


CLAIM = """
import sys, time
from pathlib import Path
from ptq_dynamics.engine import builds
builds.claim(Path(".snakemake/ptq-dynamics-builds"), [sys.argv[1]], [])
print("claimed", flush=True)
time.sleep(600)
"""


def test_a_build_of_what_another_builds_says_so_in_one_line(measured):
    target = (f"{LOSSES}/manifest.json",)
    command = [sys.executable, "-c", CLAIM, *target]
    other = Popen(command, cwd=measured.folder, env=measured.variables(), stdout=PIPE, text=True)
    try:
        other.stdout.readline()
        (measured.folder / target[0]).unlink()
        assert measured.planned(targets=target) == {"evaluate:constant-3e-3,101,fp,all"}
        done = measured.snakemake(targets=target)
        said = done.stdout + done.stderr
        assert done.returncode == 1 and "Traceback" not in said
        (line,) = [line for line in said.splitlines() if "another build" in line]
        assert f"another build (process {other.pid}) is at work on {target[0]}; run" in line
    finally:
        other.kill()
    done = measured.snakemake(targets=target)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


def wait_for(condition, what, patience=120):
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def test_the_warm_process_ends_with_the_snakemake_that_was_killed(partial):
    shutil.rmtree(partial.folder / "figures", ignore_errors=True)
    process = Popen(
        partial.command("--forcerun", "evaluate", targets=("fig04",)),
        cwd=partial.folder,
        env=partial.variables(),
        stdout=DEVNULL,
        stderr=DEVNULL,
        start_new_session=True,
    )
    server = None
    end = time.monotonic() + 60
    while server is None and process.poll() is None:
        assert time.monotonic() < end, "there is no warm process"
        server = warm_server_of(process.pid)
        time.sleep(0.05)
    assert server is not None, "the build ended before its warm process was seen"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    end = time.monotonic() + 60
    while os.path.exists(f"/proc/{server}"):
        assert time.monotonic() < end, "the warm process outlives Snakemake"
        time.sleep(0.1)


def warm_server_of(parent):
    children = f"/proc/{parent}/task/{parent}/children"
    try:
        with open(children, encoding="utf-8") as file:
            found = file.read().split()
        for child in found:
            with open(f"/proc/{child}/cmdline", encoding="utf-8") as file:
                if "ptq_dynamics.engine.warm.server" in file.read():
                    return int(child)
    except FileNotFoundError:
        pass
    return None


# Damage


@pytest.fixture
def damaged(built, tmp_path):
    """A folder in which a consumer's input can be damaged: the project stays as it is."""
    copy_results(built.folder, tmp_path, ["results/smoke/corpus/main", TRUNK])
    return tmp_path


@pytest.mark.parametrize(
    "consumer",
    [
        "quantize/constant-3e-3/seed-101/gptq-4bit/all",
        "evaluate/constant-3e-3/seed-101/fp/all",
        "average/lawa-5/seed-101/all",
    ],
)
def test_a_truncated_checkpoint_fails_its_consumer_with_one_line(built, damaged, consumer):
    weights = sorted((damaged / TRUNK).glob("step-*/model.safetensors"))[-1]
    weights.write_bytes(weights.read_bytes()[:-50])
    done = run_job(built, damaged, recorded_job(built, f"results/smoke/{consumer}"))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert f"{weights.relative_to(damaged)} has " in line
    assert f"rebuild it: rm {TRUNK}/manifest.json" in line
    assert visible(damaged / "results/smoke" / consumer) == {}


def test_a_damaged_branch_state_fails_the_branch_with_one_line(built, damaged):
    timeline = built.plan.site.timeline
    first, _ = timeline.run("rainbow-036").ends(timeline)
    state = damaged / TRUNK / f"state-{first:07d}.safetensors"
    state.write_bytes(state.read_bytes()[:-50])
    done = run_job(built, damaged, recorded_job(built, "results/smoke/train/rainbow-036/seed-101"))
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert f"{state.relative_to(damaged)} has " in done.stderr


def test_the_remedy_mends_it(built, damaged):
    """What the line says: remove the manifest and build again, here the job by hand."""
    weights = sorted((damaged / TRUNK).glob("step-*/model.safetensors"))[-1]
    weights.write_bytes(weights.read_bytes()[:-50])
    job = recorded_job(built, TRUNK)
    (damaged / Paths.of(job).manifest).unlink()
    assert run_job(built, damaged, job).returncode == 0
    assert not differing(artifacts(built.folder / TRUNK), artifacts(damaged / TRUNK))


# Wrong names on the command line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--config", "scale=smoke", "figures=fig99"], ["figure: 'fig99'", "nearest: fig"]),
        (["--config", "scale=huge"], ["scale is 'huge'", "'smoke', 'laptop', 'gpu' or 'paper'"]),
        (["--config", "scal=smoke"], ["scal: unknown key", "did you mean 'scale'?"]),
        (["--config", "scale=smoke", "seed=x"], ["seed is 'x'", "integer"]),
        (["--config", "scale=smoke", "--", "fig99"], ["fig99"]),
        (
            [
                "--config",
                "scale=smoke",
                "--",
                "results/smoke/train/rainbow-999/seed-101/manifest.json",
            ],
            ["rainbow-999"],
        ),
    ],
    ids=["figure", "scale", "key", "seed", "target", "run"],
)
def test_a_wrong_name_is_one_clear_line(built, arguments, words):
    done = built.process([SNAKEMAKE, "-n", *arguments])
    said = done.stdout + done.stderr
    assert done.returncode == 1
    assert "Traceback" not in said
    lines = [line for line in said.splitlines() if words[0] in line]
    assert lines, said[-2000:]
    missing = [word for word in words if word not in lines[0]]
    assert not missing, (missing, lines[0])


def test_a_broken_configuration_stops_before_any_job(built):
    with built.edited("config/runs.yaml") as (path,):
        built.replace(path, "cooldown: 18/190", "cooldwn: 18/190")
        done = built.snakemake()
    said = done.stdout + done.stderr
    assert done.returncode == 1 and "Traceback" not in said
    assert "config/runs.yaml: runs.rainbow-002" in said
    assert "runs.rainbow-002.cooldwn: unknown key; did you mean 'cooldown'?" in said
    assert "rule " not in said
