"""Who watches builds sees how far they have come, whoever runs their jobs, until they end."""

import contextlib
import json
import os
import pty
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen

import pytest
from ptq_dynamics.engine import builds, lease, watching
from ptq_dynamics.engine.context import BEGINS, Progress
from ptq_dynamics.engine.watching import Reading, reading
from support import python

COMMAND = [sys.executable, "-m", "ptq_dynamics.cli", "status", "--watch"]

# A build of the jobs that it is told of, which notes what it reads and ends with its input.
BUILD = """
import json, sys
from ptq_dynamics.engine import builds
jobs = json.loads(sys.stdin.readline())
journal = builds.claim(builds.FOLDER, jobs, [], jobs, local=sys.argv[1] == "local")
print("claimed", flush=True)
for line in sys.stdin:
    journal.note(*json.loads(line))
    print("noted", flush=True)
"""


class Started:
    """A build in a process of its own."""

    def __init__(self, folder, jobs, where="local"):
        command = [sys.executable, "-c", BUILD, where]
        self.process = Popen(command, cwd=folder, stdin=PIPE, stdout=PIPE, text=True)
        self.process.stdin.write(json.dumps(jobs) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "claimed\n"

    def note(self, *event):
        self.process.stdin.write(json.dumps(event) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "noted\n"

    def end(self):
        self.process.communicate()


@pytest.fixture
def start(tmp_path):
    with ExitStack() as stack:

        def start(jobs, where="local"):
            found = Started(tmp_path, jobs, where)
            stack.callback(found.process.wait)
            stack.callback(found.process.kill)
            return found

        yield start


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def job(number, stage="quantize.gptq"):
    """A job of a build: its manifest and its label."""
    return f"results/smoke/{stage}/{number}/manifest.json", f"{stage} run-{number} seed 1"


def write_log(folder, job, *lines):
    manifest, label = job
    log = folder / Path(manifest).with_name(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    began = f"{BEGINS}{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(time.time() - 50))} UTC"
    log.write_text("".join(f"{label}: {line}\n" for line in (began, *lines)))
    return log


def the_only_view():
    (build,), _ = watching.builds(builds.FOLDER)
    build.follow()
    return build.view()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "step 120/480  loss 3.412  lr 3.00e-03  51,234 tokens/s  70 s to go",
            Reading("120/480", 3.412, 51234.0, 60.0),
        ),
        (
            "train: 1,000 of 9,000 tokens, 2,000 tokens/s, about 4 s to go",
            Reading("1,000/9,000", None, 2000.0, 0.0),
        ),
        ("3 of 12 checkpoints", Reading("3/12")),
        (
            "installing gptqmodel.txt (minutes, once)",
            Reading(text="installing gptqmodel.txt (minutes, once)"),
        ),
    ],
)
def test_a_progress_line_is_read(line, told):
    assert reading(line, 10) == told


def test_jobs_of_a_build_are_queued_then_at_work_then_done_or_failed(here, start):
    jobs = [job(number) for number in range(4)] + [job(0, "measure.loss")]
    build = start(dict(jobs))
    assert the_only_view().total == {"queued": 5}
    for manifest, _ in jobs[:3]:
        build.note("began", manifest)
    write_log(here, jobs[0], "3 of 12 checkpoints")
    view = the_only_view()
    assert view.total == {"running": 3, "queued": 2} and view.left is None
    assert view.running[0].reading == Reading("3/12")
    assert [each.label for each in view.running] == [label for _, label in jobs[:3]]
    log = write_log(here, jobs[1])
    log.write_text(log.read_text() + f"error: {jobs[1][1]}: the disk is full: free some space\n")
    build.note("done", jobs[0][0], 10.0)
    build.note("failed", jobs[1][0])
    view = the_only_view()
    assert view.counts["quantize.gptq"] == {"done": 1, "failed": 1, "running": 1, "queued": 1}
    assert view.counts["measure.loss"] == {"queued": 1}
    (failed,) = view.failed
    assert failed.reason == "the disk is full: free some space"
    assert failed.log == str(log.relative_to(here))
    # Three more of 10 s each, one at a time, one of which has just begun.
    assert view.left == pytest.approx(30, abs=2)
    # What is tried again is no longer failed.
    build.note("began", jobs[1][0])
    assert the_only_view().total["failed"] == 0


def test_where_a_scheduler_runs_jobs_those_with_a_lease_are_at_work(here, start):
    jobs = [job(number, "train.train") for number in range(3)]
    build = start(dict(jobs), "remote")
    for manifest, _ in jobs:
        build.note("began", manifest)
    assert the_only_view().total == {"queued": 3}, "they are submitted, and no more"
    write_log(here, jobs[0], "step 2/4  loss 3.000  lr 1.00e-03  10 tokens/s  7 s to go")
    path = here / Path(jobs[0][0]).with_name(".lease")
    with lease.held(path, print, lambda: None):
        view = the_only_view()
        assert view.total == {"running": 1, "queued": 2}
        (running,) = view.running
        assert (running.reading.share, running.reading.loss) == ("2/4", 3.0)
        assert running.host == os.uname().nodename
        assert running.seconds == pytest.approx(50, abs=5), "since its log was begun"
        # A lease whose owner is gone.
        old = time.time() - 2 * lease.SECONDS
        os.utime(path, (old, old))
        assert the_only_view().total == {"queued": 3}
        os.utime(path)


def test_a_log_has_a_line_every_so_often_until_the_build_ends(here, start):
    jobs = [job(number) for number in range(2)]
    build = start(dict(jobs))
    build.note("began", jobs[0][0])
    write_log(here, jobs[0], "1 of 2 checkpoints")
    watcher = Popen([*COMMAND, "--every", "0.2"], stdout=PIPE, text=True)
    said = [watcher.stdout.readline(), watcher.stdout.readline()]
    assert f" process {build.process.pid}: 0 of 2 done, 1 running, 1 queued, after " in said[0]
    assert said[1].startswith(f"  {jobs[0][1]}: for ") and said[1].endswith(", 1/2\n")
    for manifest, _ in jobs:
        build.note("done", manifest, 1.0)
    build.note("end", "", 1.0)
    build.end()
    said += watcher.communicate(timeout=30)[0].splitlines()
    assert watcher.returncode == 0
    assert said[-1].startswith(f"the build of process {build.process.pid} is done: 2 of 2 done,")
    again = python(["-m", "ptq_dynamics.cli", "status", "--watch"], here)
    assert again.returncode == 0 and again.stdout.count("\n") == 1
    assert again.stdout == f"no build is at work in this folder; {said[-1]}\n"


@pytest.mark.parametrize("ends", ["failed", "interrupted", "killed"])
def test_a_build_that_is_not_done_makes_the_exit_status_1(here, start, ends):
    one = job(1)
    build = start(dict([one]))
    build.note("began", one[0])
    watcher = Popen([*COMMAND, "--every", "0.2"], stdout=PIPE, stderr=STDOUT, text=True)
    assert "0 of 1 done, 1 running" in watcher.stdout.readline()
    if ends == "failed":
        log = write_log(here, one)
        log.write_text(log.read_text() + f"error: {one[1]}: {'no' * 200}\n")
        build.note("failed", one[0])
    if ends == "killed":
        build.process.kill()
    else:
        build.note("end", "", 0.0)
    build.end()
    said = watcher.communicate(timeout=30)[0]
    assert watcher.returncode == 1
    how = {"failed": "has failed", "interrupted": "was interrupted", "killed": "was killed"}[ends]
    assert f"the build of process {build.process.pid} {how}: 0 of 1 done" in said
    if ends == "failed":
        assert f"  {one[1]} (log: {log.relative_to(here)})\n    nono" in said
        assert max(map(len, said.splitlines())) < 200


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ([], 0, "no build is at work in this folder\n"),
        (["--json"], 1, "error: --watch shows all builds in this folder; leave out --json\n"),
        (["--scale", "smoke"], 1, "leave out --scale\n"),
        (["--every", "0"], 1, "error: --every is 0.0; give seconds, more than 0\n"),
    ],
)
def test_where_nothing_is_to_be_watched_one_line_says_so(tmp_path, arguments, status, words):
    done = python(["-m", "ptq_dynamics.cli", "status", "--watch", *arguments], tmp_path)
    assert done.returncode == status and (done.stdout + done.stderr).endswith(words)
    assert (done.stdout + done.stderr).count("\n") == 1


def test_on_a_terminal_there_is_a_table_and_ctrl_c_leaves_the_build_alone(here, start):
    one = job(1, "train.train")
    build = start(dict([one, job(2, "train.train")]))
    build.note("began", one[0])
    write_log(here, one, "step 120/480  loss 3.412  lr 3.00e-03  51,234 tokens/s  7200 s to go")
    terminal, inside = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    command = [*COMMAND, "--every", "0.2"]
    watcher = Popen(command, stdout=inside, stdin=inside, env=environment, start_new_session=True)
    os.close(inside)
    said = b""
    while b"queued" not in said or b"51,234" not in said:
        said += os.read(terminal, 4096)
    for word in (one[1], "120/480", "3.412", "2.0 h", "stage", "1 running, 1 queued"):
        assert word.encode() in said, said
    watcher.send_signal(2)
    try:
        while piece := os.read(terminal, 4096):
            said += piece
    except OSError:
        pass  # the other end is closed
    assert watcher.wait(timeout=10) == 1
    assert b"no longer watched; the build goes on" in said
    assert said.rindex(b"\x1b[?25h") > said.rindex(b"\x1b[?25l"), "the cursor stays hidden"
    assert build.process.poll() is None


@pytest.mark.parametrize("where", ["local", "remote"])
def test_a_look_at_2400_jobs_is_light(here, start, where):
    jobs = [job(number, f"stage-{number % 8}") for number in range(2400)]
    build = start(dict(jobs), where)
    for manifest, _ in jobs[:1200]:
        build.note("began", manifest)
        build.note("done", manifest, 1.0)
    for each in jobs[1200:1240]:
        build.note("began", each[0])
        write_log(here, each, "3 of 12 checkpoints").with_name(".lease").write_text("pid=1\n")
    (watched,), _ = watching.builds(builds.FOLDER)
    watched.follow()
    assert watched.view().total == {"done": 1200, "running": 40, "queued": 1160}
    begun = time.process_time()
    for _ in range(5):
        assert watched.is_at_work
        watched.follow()
        watched.view()
    took = (time.process_time() - begun) / 5
    assert took < 0.3, took
    print(f"to be seen: a look at 2,400 jobs takes {1000 * took:.0f} ms of processor time")


def test_a_journal_is_read_to_its_last_whole_line(tmp_path):
    path = tmp_path / "1.jobs"
    reader = watching.Reader(path)
    assert list(reader.new()) == []
    path.write_text('[1.0, "began", "a", null]\n[2.0, "do')
    assert [each.kind for each in reader.new()] == ["began"]
    path.write_text(path.read_text() + 'ne", "a", 3.0]\n')
    assert [(each.kind, each.seconds) for each in reader.new()] == [("done", 3.0)]
    assert list(reader.new()) == []


def test_claims_and_journals_of_builds_that_are_gone_are_removed(here, start):
    build = start({"a/manifest.json": "a"})
    assert [at_work for _, at_work in builds.known(builds.FOLDER)] == [True]
    build.process.kill()
    build.end()
    assert [at_work for _, at_work in builds.known(builds.FOLDER)] == [False]
    other = start({"a/manifest.json": "a"})
    names = {path.name for path in builds.FOLDER.iterdir()}
    assert names == {builds.TURN, f"{other.process.pid}.json", f"{other.process.pid}.jobs"}


def test_who_looks_does_not_keep_a_build_from_beginning(here, start):
    """A claim that is looked at is locked for that long, and would seem to be of another build."""
    start({"a/manifest.json": "a"}).process.kill()
    looker = Popen(
        [
            sys.executable,
            "-c",
            "from ptq_dynamics.engine import builds\nprint('looks', flush=True)\n"
            "while True: builds.known(builds.FOLDER)",
        ],
        stdout=PIPE,
    )
    looker.stdout.readline()
    try:
        for _ in range(20):
            build = start({"a/manifest.json": "a"})
            build.process.kill()
            build.process.wait()
    finally:
        looker.kill()
        looker.wait()


def test_what_is_noted_is_in_the_log_alone(tmp_path, capsys):
    with (tmp_path / "log").open("w") as log:
        Progress("job", log).note("done in 1.0 s")
        Progress("job").note("nowhere")
    assert (tmp_path / "log").read_text() == "job: done in 1.0 s\n"
    assert capsys.readouterr().err == ""


def test_a_journal_without_room_does_not_end_the_build(here):
    journal = builds.Journal(Path("/dev/full"))
    journal.note("began", "a")
    journal.note("done", "a", 1.0)
    with contextlib.suppress(OSError):
        journal._file.close()
