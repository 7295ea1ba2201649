"""Jobs: a result is there whole or not at all, an earlier one is not lost, and what goes wrong is
said in one line. The stages are those of the toy (tests/toy.py), the engine is the real one."""

import json
import os
import shutil
import signal
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
from ptq_dynamics.base.content import sha256
from ptq_dynamics.engine import machine, record
from ptq_dynamics.engine.execute import _explain
from ptq_dynamics.engine.paths import Paths
from support import differing, git, visible, wait_until
from toy import NAMES, Toy

pytestmark = pytest.mark.slow

# Of outdated results they go, until their jobs have run.
MANIFESTS = ("numbers/manifest.json", "walk/manifest.json", "total.manifest.json")


def one_error(said):
    """The only error line of what a job printed, which holds no traceback."""
    assert "Traceback" not in said, said
    (line,) = [line for line in said.splitlines() if line.startswith("error:")]
    return line


# A result


def test_a_result_is_its_files_a_record_and_a_manifest_that_says_the_same(built_toy):
    folder = built_toy.folder / "results/numbers"
    assert {*visible(folder)} == {
        *("count.txt", "sub/numbers.txt", "manifest.json", "record.json", "spec.json")
    }
    made = record.read(folder / "record.json")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest == {"files": made.files, "facts": made.facts} and made.facts == {"count": 5}
    for name, entry in made.files.items():
        path = folder / name
        assert entry == {"size": path.stat().st_size, "sha256": sha256(path)}
    assert made.job == json.loads((folder / "spec.json").read_text())
    assert made.job["code"].keys() == {"toy.numbers", "toy.tools", "base.fields", "base.problem"}
    walk = record.read(built_toy.folder / "results/walk/record.json")
    assert walk.inputs == {"results/numbers/manifest.json": sha256(folder / "manifest.json")}
    total = record.read(built_toy.folder / "results/total.record.json")
    assert total.job["libraries"].keys() == {"numpy", "pydantic", "pydantic_core"}
    assert total.seconds > 0 and total.peak_memory > 2**20 and total.threads == 1
    assert not list(built_toy.folder.rglob(".work-*")) and not list(
        built_toy.folder.rglob(".lease")
    )


def test_a_rebuild_removes_what_the_earlier_result_had_and_others_in_its_folder_stay(toy):
    (toy.folder / "results/other.csv").write_text("kept")
    (toy.folder / "results/numbers/stray.txt").write_text("x")
    toy.edit("numbers", '(context.out / "count.txt").write_text("x" * settings.count)', "pass")
    assert toy.made(toy.build(title="sum", count=6)) == {*NAMES}
    assert {*visible(toy.folder / "results/numbers")} == {
        *("sub/numbers.txt", "manifest.json", "record.json", "spec.json")
    }
    assert (toy.folder / "results/other.csv").read_text() == "kept"


# Failures


@pytest.mark.parametrize(
    ("count", "words"),
    [(10001, "lower the count (log: results/numbers/.log)"), (13, "ValueError: of ill luck")],
)
def test_a_failing_stage_is_one_line_and_costs_no_earlier_result(toy, count, words):
    before = toy.results()
    assert toy.settle(count=count) == dict.fromkeys(NAMES, False)
    done = toy.run("numbers")
    assert done.returncode == 1 and words in one_error(done.stderr)
    log = (toy.folder / "results/numbers/.log").read_text()
    assert ("Traceback" in log) == (count == 13)
    assert {*differing(before, toy.results())} == {*MANIFESTS, "numbers/spec.json"}
    # Whoever reads it still can.
    assert toy.run("walk").returncode == 0
    assert toy.build() == {} and not differing(before, toy.results())


FULL = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from ptq_dynamics.engine import execute, run
from ptq_dynamics.base import problem
make = execute._make
def full(*arguments):
    try:
        return make(*arguments)
    except OSError as error:
        error.errno = problem.errno.ENOSPC  # as the limit on the size of files has another name
        raise
execute._make = full
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
sys.exit(run.main([sys.argv[1]]))
"""


def test_a_full_disk_is_one_line_and_no_half_result(toy):
    before = toy.results()
    toy.settle(count=9000)
    done = toy.python("-c", FULL, toy.specs["numbers"])
    assert done.returncode == 1
    assert "the disk is full; free some space (see results/numbers)" in one_error(done.stderr)
    assert {*differing(before, toy.results())} == {*MANIFESTS, "numbers/spec.json"}
    quota = RuntimeError("I/O error: Disk quota exceeded (os error 122)")
    assert "the disk is full" in _explain(quota, Paths(toy.folder))


# Edits


def test_an_edit_between_planning_and_the_job_does_not_run(toy):
    toy.settle(seed=2)
    toy.edit("tools", "FACTOR = 2", "FACTOR = 3")
    line = one_error(toy.run("numbers").stderr)
    assert "toy.tools changed since the job was planned; run the same command again" in line
    assert toy.made(toy.build(seed=2)) == {*NAMES}


@pytest.mark.parametrize("name", ["walk/sums.txt", "walk/record.json", "walk/spec.json"])
def test_damage_is_mended_and_no_other_result_is_made(toy, name):
    before, path = toy.results(), toy.folder / "results" / name
    for harm in (path.unlink, lambda: path.write_bytes(path.read_bytes()[:-1])):
        harm()
        assert toy.made(toy.build()) <= {"walk"}
        assert not differing(before, toy.results())


# Interruptions


def has_state(toy):
    """Whether the walk has saved its state, from which it goes on."""
    return [*(toy.folder / "results/walk").glob(".work-*/scratch/state.txt")]


def test_an_interrupted_run_ends_at_once_and_goes_on(toy):
    toy.settle(pause=0.2, count=12)
    assert toy.run("numbers").returncode == 0
    process = toy.start("walk")
    wait_until(partial(has_state, toy), "it does not begin")
    process.terminate()
    said = process.communicate(timeout=60)[1]
    assert (process.returncode, said) == (-signal.SIGTERM, "")
    # What an edit leaves meanwhile is no reason to lose it.
    toy.settle(pause=0.2, count=12, seed=3)
    assert toy.run("numbers").returncode == 0
    said = "".join(toy.build(pause=0.2, count=12).values())
    assert "going on from " in said
    undisturbed = Toy(toy.folder.with_name("undisturbed"))
    shutil.copytree(toy.folder, undisturbed.folder, ignore=shutil.ignore_patterns("results"))
    undisturbed.build(pause=0.2, count=12)
    assert not differing(undisturbed.results(), toy.results())
    assert not list(toy.folder.rglob(".work-*"))


# The warm process


WARM = """
import os, sys, time
from ptq_dynamics.engine import warm
warm.start()
while not os.path.exists(os.environ[warm.VARIABLE]):
    time.sleep(0.01)
print(os.environ[warm.VARIABLE], warm._servers[0].pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def warm(toy):
    """A build that keeps a warm process: its socket, and the process."""
    process = toy.begin("-c", WARM)
    address, server = process.stdout.readline().split()
    yield {"PTQ_DYNAMICS_WARM": address}, int(server)
    process.kill()
    process.wait()
    wait_until(lambda: not Path(f"/proc/{server}").exists(), "it outlives its build")


@pytest.fixture
def with_blas(toy):
    """Its total imports numpy, and its facts are the libraries that compute for it."""
    toy.edit("total", "import json", "import json\nimport numpy\nimport threadpoolctl")
    toy.edit("total", '{"identity"', '{"blas": threadpoolctl.threadpool_info(), "identity"')
    toy.settle()


@pytest.mark.skipif(os.cpu_count() == 1, reason="libraries compute on one thread anyway")
def test_numpy_has_the_threads_of_the_job_and_not_of_the_warm_process(toy, with_blas, warm):
    done = toy.run("total", OMP_NUM_THREADS="2", **warm[0])
    assert done.returncode == 0 and Path(warm[0]["PTQ_DYNAMICS_WARM"]).exists(), done.stderr
    (blas,) = record.read(toy.folder / "results/total.record.json").facts["blas"]
    assert blas["num_threads"] == 2


def test_the_warm_process_gives_the_same_bytes_and_after_an_edit_it_ends(toy, warm):
    environment, _ = warm

    def made(**way):
        shutil.rmtree(toy.folder / "results")
        toy.settle()
        for name in NAMES:
            done = toy.run(name, **way)
            assert done.returncode == 0 and "done in" in done.stderr, done.stderr
        return toy.results()

    assert not differing(toy.results(), made(**environment))
    assert Path(environment["PTQ_DYNAMICS_WARM"]).exists()
    toy.edit("tools", "FACTOR = 2", "FACTOR = 3")
    assert not differing(made(**environment), made())
    assert not Path(environment["PTQ_DYNAMICS_WARM"]).exists(), "it runs on with the old code"


def has_ended(child):
    return psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_a_job_of_the_warm_process_ends_whatever_ends_it(toy, warm):
    environment, server = warm
    toy.settle(pause=0.2, count=12)
    assert toy.run("numbers", **environment).returncode == 0
    children = Path(f"/proc/{server}/task/{server}/children")
    for number in (signal.SIGTERM, signal.SIGKILL):
        process = toy.start("walk", **environment)
        wait_until(lambda: len(children.read_text().split()) == 1, "no child runs it")
        wait_until(partial(has_state, toy), "it does not begin")
        time.sleep(0.5)
        child = int(children.read_text().split()[0])
        os.kill(child if number == signal.SIGKILL else process.pid, number)
        said = process.communicate(timeout=60)[1]
        if number == signal.SIGKILL:
            assert process.returncode == 1
            assert one_error(said).startswith("error: toy.walk two: its process was killed")
        else:
            assert (process.returncode, said) == (-number, "")
            wait_until(partial(has_ended, child), "its job goes on")
    # Without it, the job goes on by itself.
    os.kill(server, signal.SIGKILL)
    done = toy.run("walk", **environment)
    assert done.returncode == 0 and "going on from" in done.stderr, done.stderr


# The repository


def test_a_record_names_the_commit_and_the_edited_files_that_jobs_read(toy):
    assert record.read(toy.folder / "results/walk/record.json").git is None
    git(toy.folder, "init", "-q")
    assert machine.commit.__wrapped__(root=toy.folder) is None
    for name in ("README.md", "docs/a.md", "paper/paper.typ"):
        (toy.folder / name).parent.mkdir(exist_ok=True)
        (toy.folder / name).touch()
    (toy.folder / ".gitignore").write_text("/results/\n")
    git(toy.folder, "add", ".")
    git(toy.folder, "commit", "-qm", "first")
    toy.settle(seed=2)
    # As where a hook of git builds.
    assert toy.run("numbers", GIT_DIR="/nowhere", GIT_INDEX_FILE="/nowhere").returncode == 0
    found = record.read(toy.folder / "results/numbers/record.json").git
    head, tree = git(toy.folder, "rev-parse", "HEAD", "HEAD^{tree}").split()
    assert found == machine.Git(head, False, tree=tree) and str(found) == head[:10]
    for name in ("README.md", "docs/a.md", "paper/paper.typ"):
        (toy.folder / name).write_text("Other words.")
    (toy.folder / "workflow/notes.txt").touch()
    assert not machine.commit.__wrapped__(root=toy.folder).dirty
    (toy.folder / "workflow/new.smk").touch()
    edited = ("paper/paper.typ", "workflow/new.smk")
    assert machine.commit.__wrapped__("paper", root=toy.folder).edited == edited
    found = machine.commit.__wrapped__(root=toy.folder)
    assert str(found) == f"{head[:10]} with edits in workflow/new.smk"
