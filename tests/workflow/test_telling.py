"""What a build says as it goes, and what one sees who watches it."""

import json
import os
import re
import shutil
import sys
from contextlib import chdir
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen

import pytest
from project import Project
from ptq_dynamics.engine import builds, manifest, verified
from ptq_dynamics.engine.journal import JOURNAL
from support import wait_until

TARGETS = ("fig04",)
DONE = re.compile(r"^(\S+ .+|theirs): (done in [\d.]+ s|done|unchanged) \((\d+) of (\d+)\)$", re.M)
# Lines of Snakemake that are replaced.
SNAKEMAKES = ("Finished jobid", "Select jobs", "Execute ", " steps (", "SNAKEMAKE")


@pytest.fixture(scope="module")
def project(built, tmp_path_factory):
    place = tmp_path_factory.mktemp("telling")
    folder = shutil.copytree(built.folder, place / "project")
    # Devices that are none, which torch does not look for without CUDA.
    environment = {"CUDA_VISIBLE_DEVICES": "5,6", "TMPDIR": str(place)}
    return Project(folder, "fig04", environment)


def begin(project, *arguments):
    command = project.command(*arguments, targets=TARGETS)
    options = {"cwd": project.folder, "env": project.variables(), "text": True}
    return Popen(command, stdout=PIPE, stderr=STDOUT, **options)


def test_a_line_a_job_and_who_watches_sees_the_same(project):
    for run in ("rainbow-036", "rainbow-070"):
        shutil.rmtree(project.folder / f"results/smoke/quantize/{run}")
    (project.folder / "figures/smoke/fig04.manifest.json").unlink()
    due = {each["job"] for each in project.status() if each["state"] != "fresh"}
    build = begin(project)
    folder = project.folder / builds.FOLDER
    claim, journal = folder / f"{build.pid}.json", folder / f"{build.pid}{JOURNAL}"
    wait_until(lambda: build.poll() is not None or "began" in read(journal), "no job begins")
    watcher = Popen(
        [sys.executable, "-m", "ptq_dynamics.cli", "status", "--watch", "--every", "0.5"],
        cwd=project.folder,
        env=project.variables(),
        stdout=PIPE,
        text=True,
    )
    said, seen = build.communicate()[0], watcher.communicate()[0]
    assert build.returncode == 0 and watcher.returncode == 0, said + seen
    lines = DONE.findall(said)
    labels = {label for label, *_ in lines}
    assert len(labels) == len(lines) == len(due) >= 5, said
    assert labels == set(json.loads(claim.read_text())["jobs"].values())
    assert [int(count) for _, _, count, _ in lines] == list(range(1, len(lines) + 1))
    assert {int(total) for *_, total in lines} == {len(lines)}
    hows = {label: how for label, how, *_ in lines}
    assert hows["measure.loss rainbow-036 seed 101 gptq-4bit"] == "unchanged"
    assert hows["quantize.gptq rainbow-036 seed 101 gptq-4bit"].startswith("done in ")
    same = sum(how == "unchanged" for how in hows.values())
    assert f"\n{len(lines)} of {len(lines)} jobs are done, {same} of them unchanged\n" in said
    assert not [word for word in SNAKEMAKES if word in said], said
    assert re.search(rf" process {build.pid}: \d+ of {len(lines)} done, \d running", seen), seen
    assert "  quantize.gptq rainbow-0" in seen
    leases = project.folder.parent / f"ptq-dynamics-devices-{os.getuid()}"
    assert "5-0.lock" in {path.name for path in leases.iterdir()}, "no job took a device"
    last = f"the build of process {build.pid} is done: {len(lines)} of {len(lines)} done, after "
    assert seen.splitlines()[-1].startswith(last)


def test_in_the_end_it_says_what_failed_and_where_its_log_is(project):
    quantized = "results/smoke/quantize/{}/seed-101/gptq-4bit/all"
    place = project.folder / quantized.format("rainbow-036")
    weights = next(place.glob("*/model.safetensors"))
    intact = weights.read_bytes()
    losses = "results/smoke/evaluate/{}/seed-101/gptq-4bit/all"
    for run in ("rainbow-036", "rainbow-070"):
        (project.folder / losses.format(run) / "manifest.json").unlink()
    weights.write_bytes(intact[::-1])
    # As if its bytes had been found right: the job notices it, the planner does not.
    with chdir(project.folder):
        result = manifest.read(Path(quantized.format("rainbow-036")) / "manifest.json")
        verified.note(result, [str(weights.relative_to(place))])
    try:
        build = begin(project)
        said = build.communicate()[0]
    finally:
        weights.write_bytes(intact)
    assert build.returncode == 1
    failed, done = (
        f"measure.loss {run} seed 101 gptq-4bit" for run in ("rainbow-036", "rainbow-070")
    )
    (error,) = [line for line in said.splitlines() if line.startswith("error: ")]
    assert error.startswith(f"error: {failed}: ")
    assert f"\n{done}: done in " in said
    log = f"{losses.format('rainbow-036')}/.log"
    _, _, end = said.partition("1 of 3 jobs are done; 1 not begun; 1 failed:\n")
    first, second = end.splitlines()[:2]
    assert first == f"  {failed} (log: {log})"
    assert second.removesuffix(" …").strip() in error and len(second) < 200
    watched = project.process([sys.executable, "-m", "ptq_dynamics.cli", "status", "--watch"])
    assert watched.returncode == 1 and "has failed: 1 of 3 done" in watched.stdout
    assert f"{first}\n{second}\n" in watched.stdout
    assert project.snakemake(targets=TARGETS).returncode == 0


def test_snakemakes_own_lines_are_there_where_they_are_asked_for(project):
    losses = "results/smoke/evaluate/rainbow-070/seed-101/gptq-4bit/all/manifest.json"
    said = {}
    for quiet in ("reason", "progress"):
        done = project.snakemake("--force", "--quiet", quiet, targets=(losses,))
        assert done.returncode == 0, done.stderr
        said[quiet] = done.stdout + done.stderr
    assert "Finished jobid" in said["reason"] and len(DONE.findall(said["reason"])) == 1
    assert "Finished jobid" not in said["progress"] and not DONE.findall(said["progress"])
    (journal,) = (project.folder / builds.FOLDER).glob(f"*{JOURNAL}")
    assert '"done"' in read(journal), "what is not printed is noted all the same"


def read(path):
    return path.read_text() if path.exists() else ""
