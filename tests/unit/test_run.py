"""Jobs: a result is there whole or not at all, and what goes wrong is said in one line."""

import contextlib
import importlib.metadata
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
from contextlib import chdir
from pathlib import Path
from subprocess import PIPE, Popen
from subprocess import run as run_process

import pytest
from ptq_dynamics import models
from ptq_dynamics.base.content import canonical, sha256
from ptq_dynamics.engine import execute as execute_module
from ptq_dynamics.engine import (
    fingerprint,
    manifest,
    publish,
    record,
    repository,
    signals,
    variables,
    verified,
)
from ptq_dynamics.engine.context import Context
from ptq_dynamics.engine.current import is_current
from ptq_dynamics.engine.execute import execute
from ptq_dynamics.engine.fingerprint import sources
from ptq_dynamics.engine.fingerprint.code import over
from ptq_dynamics.engine.paths import Paths
from ptq_dynamics.engine.run import main
from ptq_dynamics.engine.warm import client, launch
from ptq_dynamics.train import train
from ptq_dynamics.train.settings import TrainSettings
from support import (
    ROOT,
    Workspace,
    artifacts,
    copy_results,
    differing,
    job_file,
    log_of,
    python,
    specification,
    visible,
    wait_until,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def here(workspace, tmp_path):
    """A workspace of its own with the corpus in it."""
    copy_results(workspace.folder, tmp_path, [workspace.plan.corpora.corpus("main").folder])
    return Workspace(tmp_path, workspace.plan)


@pytest.fixture
def with_trunk(here, workspace, trunk):
    """The same with the trunk's checkpoints."""
    copy_results(workspace.folder, here.folder, [here.plan.trajectories.train("trunk").folder])
    return here


def one_error(text):
    """The only error line of what a job printed, which holds no traceback."""
    assert "Traceback" not in text, text
    lines = [line for line in text.splitlines() if line.startswith("error:")]
    assert len(lines) == 1, text
    return lines[0]


# Whole or not at all


def test_a_result_is_its_files_a_record_and_a_manifest(with_trunk):
    job = with_trunk.plan.losses.evaluate("trunk", "fp", "all")
    found = with_trunk.build(job)
    folder = with_trunk.folder / job.folder
    names = {path.name for path in folder.iterdir()}
    assert names == {"losses.safetensors", "manifest.json", "record.json", ".log"}
    assert set(found.files) == {"losses.safetensors"}
    account = json.loads((folder / "record.json").read_text())
    assert account["job"] == json.loads(canonical(job.specified()))
    assert account["output"] == {job.manifest: found.digest()}
    assert account["inputs"] == {
        path: with_trunk.manifest(job_).digest()
        for path, job_ in (
            (
                with_trunk.plan.corpora.corpus("main").manifest,
                with_trunk.plan.corpora.corpus("main"),
            ),
            (
                with_trunk.plan.trajectories.train("trunk").manifest,
                with_trunk.plan.trajectories.train("trunk"),
            ),
        )
    }
    assert str(with_trunk.folder) not in (folder / "record.json").read_text()
    assert account["seconds"] > 0 and account["peak_memory"] > 2**20
    assert account["packages"].keys() == account["job"]["environment"].keys()


def test_a_job_spreads_a_model_as_it_is_told(with_trunk, monkeypatch, capsys):
    """One way that accelerate does not know cannot be missed."""
    job = with_trunk.plan.losses.evaluate("trunk", "fp", "all")
    file = job_file(with_trunk.folder, specification(job))
    monkeypatch.setattr(models, "free", lambda: 0)
    # Set first, so that what the job sets is gone after the test.
    monkeypatch.setenv(variables.DEVICE_MAP, "")
    monkeypatch.delenv(variables.DEVICE_MAP)
    with chdir(with_trunk.folder):
        assert main(["--job", file, "--device-map", "no-such"]) == 1
        assert "cannot be spread" in one_error(capsys.readouterr().err)
        monkeypatch.setenv(variables.DEVICE_MAP, "balanced")
        assert main(["--job", file, "--device-map", "no-such"]) == 0


def test_a_job_notes_what_it_publishes(with_trunk, monkeypatch):
    """So that a fresh build is not read once more to find it current."""
    job = with_trunk.plan.losses.evaluate("trunk", "fp", "all")
    with_trunk.build(job)
    monkeypatch.setattr(verified, "sha256", None)
    with chdir(with_trunk.folder):
        assert is_current(specification(job))


def test_the_manifest_is_written_last(with_trunk):
    job = with_trunk.plan.trajectories.train("trunk")
    with_trunk.build(job)
    folder = with_trunk.folder / job.folder
    written = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    written.pop(folder / ".log")
    assert max(written, key=written.__getitem__) == folder / "manifest.json"


def test_a_failing_stage_leaves_nothing_to_be_seen(here, capsys):
    job = here.plan.corpora.corpus("main")
    shutil.rmtree(here.folder / job.folder)
    assert here.attempt(job, sizes={**job.settings.sizes, "train": 10**9}) == 1
    assert "lower its train" in one_error(capsys.readouterr().err)
    assert visible(here.folder / job.folder) == {}
    assert "lower its train" in (here.folder / log_of(job)).read_text()


def test_a_failing_stage_leaves_an_earlier_result_alone(here, capsys):
    job = here.plan.corpora.corpus("main")
    before = visible(here.folder / job.folder)
    assert before
    assert here.attempt(job, sizes={**job.settings.sizes, "train": 10**9}) == 1
    one_error(capsys.readouterr().err)
    assert not differing(before, visible(here.folder / job.folder))


def test_a_rebuild_removes_the_files_of_the_earlier_result(with_trunk):
    job = with_trunk.plan.trajectories.train("trunk")
    found = with_trunk.build(job, last=6)
    kept = {name.split("/")[0] for name in visible(with_trunk.folder / job.folder)}
    assert kept == {name.split("/")[0] for name in found.files} | {"manifest.json", "record.json"}
    assert "step-0000008" not in kept and "step-0000006" in kept
    leftovers = [p.name for p in (with_trunk.folder / job.folder).glob(".*") if p.name != ".log"]
    assert not leftovers


def test_jobs_that_share_a_folder_leave_each_others_files_alone(here):
    plan = here.plan
    (here.folder / plan.site.results).mkdir(exist_ok=True)
    other = here.folder / plan.site.results / "other.csv"
    other.write_text("kept")
    copied = here.folder / plan.corpora.corpus("main").manifest
    before = copied.read_bytes()
    job = plan.figures.collect()
    spec = {**specification(job), "inputs": {"measurements": []}}
    with chdir(here.folder):
        execute(spec)
    assert other.read_text() == "kept"
    assert copied.read_bytes() == before


def test_an_interrupted_job_of_another_specification_is_not_gone_on_from(here):
    job = here.plan.trajectories.train("trunk")
    stale = here.folder / job.folder / ".work-0123456789abcdef"
    (stale / "out" / "step-0000099").mkdir(parents=True)
    (stale / "out" / "step-0000099" / "model.safetensors").write_bytes(b"stale")
    here.build(job)
    assert not stale.exists()
    assert "step-0000099" not in {path.name for path in (here.folder / job.folder).iterdir()}


def test_an_edit_that_fails_and_is_undone_costs_no_training_state(here, monkeypatch):
    job = here.plan.trajectories.train("trunk")
    works = job.paths.folder
    # A state after every update, until one that fails.
    monkeypatch.setattr(train.Pace, "state_is_due", lambda _: True)
    plain = train.Trainer.update
    monkeypatch.setattr(
        train.Trainer, "update", lambda own, batch: plain(own, batch) if own.step < 20 else 1 / 0
    )
    assert here.attempt(job) == 1
    (left,) = (here.folder / works).glob(".work-*")
    # Each leaves a state of its own, and the last one fails before it has any.
    assert here.attempt(job, log_every=3) == here.attempt(job, log_every=5) == 1
    monkeypatch.setattr(train, "latest_state", lambda *_: 1 / 0)
    for clip in (0.1, 0.2, 0.3, 0.4):
        assert here.attempt(job, clip=clip) == 1
    monkeypatch.undo()
    assert left.exists(), "the training state is gone"
    here.build(job)
    assert "going on from step 20" in (here.folder / log_of(job)).read_text()
    assert not list((here.folder / works).glob(".work-*"))


def test_work_folders_of_other_specifications_are_few(here, monkeypatch):
    job = here.plan.trajectories.train("trunk")
    monkeypatch.setattr(train.Pace, "state_is_due", lambda _: True)
    plain = train.Trainer.update
    monkeypatch.setattr(
        train.Trainer, "update", lambda own, batch: plain(own, batch) if own.step < 3 else 1 / 0
    )
    tried = []
    for clip in (0.1, 0.2, 0.3, 0.4, 0.5):
        assert here.attempt(job, clip=clip) == 1
        found = set((here.folder / job.folder).glob(".work-*"))
        tried += found.difference(tried)
    assert found == {*tried[-execute_module.OTHERS - 1 :]}


def test_a_job_that_fails_while_its_result_is_published_leaves_no_manifest(
    here, trunk, capsys, monkeypatch
):
    job = here.plan.trajectories.train("trunk")

    def move(source, target):
        if target == job.paths.record:
            raise OSError("not now")
        os.replace(source, target)

    monkeypatch.setattr(publish, "_move", move)
    assert here.attempt(job) == 1
    one_error(capsys.readouterr().err)
    assert not (here.folder / job.manifest).exists()
    monkeypatch.undo()
    assert here.build(job).text() == trunk.text()
    assert not differing(artifacts(trunk.folder), artifacts(here.folder / job.folder))


# One line


def evaluate_with(here, harm, capsys):
    job = here.plan.losses.evaluate("trunk", "fp", "all")
    source = here.folder / here.plan.trajectories.train("trunk").folder
    harm(source)
    assert here.attempt(job) == 1
    assert visible(here.folder / job.folder) == {}
    return one_error(capsys.readouterr().err), source


def last_weights(source):
    return sorted(source.glob("step-*/model.safetensors"))[-1]


def truncate(source):
    path = last_weights(source)
    path.write_bytes(path.read_bytes()[:-100])


def corrupt(source):
    path = last_weights(source)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (truncate, ("model.safetensors has", "bytes instead of")),
        (corrupt, ("model.safetensors is damaged",)),
        (lambda source: last_weights(source).unlink(), ("model.safetensors is missing",)),
    ],
    ids=["truncated", "one-bit", "missing"],
)
def test_a_damaged_checkpoint_is_named_with_the_remedy(with_trunk, capsys, harm, words):
    line, _ = evaluate_with(with_trunk, harm, capsys)
    job = with_trunk.plan.trajectories.train("trunk")
    assert line.startswith("error: measure.loss trunk seed 100 fp: ")
    assert all(word in line for word in words), line
    assert f"{job.folder}/step-0000024/model.safetensors" in line
    assert f"rm {job.manifest}" in line


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda path: path.unlink(), "is missing; build it with snakemake"),
        (lambda path: path.write_text(path.read_text()[:50]), "is no manifest"),
        (lambda path: path.write_text(""), "is no manifest"),
    ],
    ids=["missing", "truncated", "empty"],
)
def test_a_damaged_manifest_is_named_with_the_remedy(with_trunk, capsys, harm, words):
    line, _ = evaluate_with(with_trunk, lambda source: harm(source / "manifest.json"), capsys)
    assert f"{with_trunk.plan.trajectories.train('trunk').manifest} {words}" in line


def test_a_checkpoint_that_no_tool_reads_is_named(with_trunk, capsys):
    """Damage that is older than the manifest, so that the digests agree with it."""

    def harm(source):
        path = source / "manifest.json"
        weights = last_weights(source)
        weights.write_bytes(weights.read_bytes()[:500])
        content = json.loads(path.read_text())
        name = str(weights.relative_to(source))
        content["files"][name] = {"size": weights.stat().st_size, "sha256": sha256(weights)}
        path.write_text(json.dumps(content))

    line, _ = evaluate_with(with_trunk, harm, capsys)
    assert "step-0000024 holds no readable checkpoint" in line, line
    assert "rebuild it" in line


def test_an_error_in_a_stage_is_one_line_and_its_traceback_is_in_the_log(with_trunk, capsys):
    job = with_trunk.plan.losses.evaluate("trunk", "fp", "all")
    assert with_trunk.attempt(job, blocks="many") == 1
    line = one_error(capsys.readouterr().err)
    assert f"traceback in {log_of(job)}" in line
    assert "Traceback (most recent call last)" in (with_trunk.folder / log_of(job)).read_text()


def test_a_checkpoint_that_is_not_in_the_trajectory_is_a_problem(with_trunk, capsys):
    job = with_trunk.plan.losses.evaluate("trunk", "fp", "all")
    assert with_trunk.attempt(job, checkpoints=["step-0000005"]) == 1
    line = one_error(capsys.readouterr().err)
    assert "has no checkpoint 'step-0000005' (it has 12, from step-0000002 to step-0000024)" in line


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "is missing; Snakemake writes it when it starts a build, so run snakemake again"),
        ("{", "neither a specification nor a record"),
        ("[]", "neither a specification nor a record"),
        ('{"job": {}}', "neither a specification nor a record ('stage')"),
    ],
    ids=["missing", "truncated", "list", "empty"],
)
def test_a_file_that_is_no_job_is_one_line(tmp_path, capsys, text, words):
    path = tmp_path / "job.json"
    if text is not None:
        path.write_text(text)
    assert main(["--job", str(path)]) == 1
    line = one_error(capsys.readouterr().err)
    assert line.startswith(f"error: {path} is no job: ") and words in line


def test_a_job_that_was_planned_with_other_code_does_not_run(here, capsys):
    """Its result would be labelled with code that did not make it."""
    spec = specification(here.plan.trajectories.train("trunk"))
    own = spec["definitions"]
    for other, words in (
        (coded({**own, "learning_rate": "0" * 8}), "learning_rate in"),
        (coded({**own, "gone": "0" * 8}), "gone in"),
        (coded({**own, "": "0" * 32}), "what definitions refer to in"),
        ({"code": "0" * 64, "definitions": None}, "what is in"),
        ({"environment": {**spec["environment"], "torch": "1.0"}}, "planned with 1.0"),
        ({"engine": 0}, "planned with number 0; run snakemake again"),
    ):
        with chdir(here.folder):
            assert execute({**spec, **other}) == 1
        assert words in one_error(capsys.readouterr().err)
    assert visible(here.folder / spec["folder"]) == {}


def coded(definitions):
    return {"code": over(definitions), "definitions": definitions}


def edit(monkeypatch):
    """From now on, another schedule is on disk."""
    found = sources.as_loaded()
    name = "ptq_dynamics.train.schedules"
    text = found[name].replace("def learning_rate(", "def learning_rate(*_, ")
    assert text != found[name]
    monkeypatch.setattr(sources, "as_loaded", lambda: {**found, name: text})


def test_code_that_is_edited_while_a_job_imports_it_does_not_run(here, capsys, monkeypatch):
    spec = specification(here.plan.trajectories.train("trunk"))
    monkeypatch.setattr(fingerprint, "load", lambda job: edit(monkeypatch))
    with chdir(here.folder):
        assert execute(spec) == 1
    line = one_error(capsys.readouterr().err)
    assert "learning_rate in" in line and "is not the code that this job was planned with" in line
    assert visible(here.folder / spec["folder"]) == {}


def test_a_library_that_is_upgraded_while_a_job_imports_it_does_not_compute(
    here, capsys, monkeypatch
):
    spec = specification(here.plan.trajectories.train("trunk"))
    find = importlib.metadata.distribution

    def upgrade(job):
        class Upgraded:
            read_text = staticmethod(lambda name: "Name: torch\nVersion: 99.0+cpu\n")

        monkeypatch.setattr(
            importlib.metadata,
            "distribution",
            lambda name: Upgraded() if name == "torch" else find(name),
        )

    monkeypatch.setattr(fingerprint, "load", upgrade)
    with chdir(here.folder):
        assert execute(spec) == 1
    assert "torch is 99.0 here, but the job was planned" in one_error(capsys.readouterr().err)
    assert visible(here.folder / spec["folder"]) == {}


def test_code_that_is_edited_while_a_job_runs_is_not_its(here, monkeypatch):
    job = here.plan.trajectories.train("trunk")
    own = train.run

    def edited(context: Context[TrainSettings]):
        edit(monkeypatch)
        monkeypatch.setattr(repository, "state", lambda: repository.Git("later", True))
        return own(context)

    monkeypatch.setattr(train, "run", edited)
    monkeypatch.setattr(repository, "state", lambda: repository.Git("first", False))
    here.build(job)
    account = record.read(here.folder / job.paths.record)
    assert account.job == json.loads(canonical(job.specified()))
    assert account.git == repository.Git("first", False)


def test_a_job_imports_all_its_code_before_it_begins(here):
    """Its modules, those that its settings select, and nothing of other stages."""
    (here.folder / "spec.json").write_text(here.plan.trajectories.train("trunk").spec())
    done = python(["-c", LOADING], here.folder, {"PYTHONPATH": str(ROOT / "workflow")})
    assert done.returncode == 0, done.stderr
    names = set(json.loads(done.stdout))
    room = "ptq_dynamics.train"
    assert {f"{room}.train", f"{room}.schedules", f"{room}.optimizers.adamw"} <= names
    assert not names & {f"{room}.optimizers.adamc", f"{room}.average"}


LOADING = """
import json, sys
from ptq_dynamics.engine import fingerprint
fingerprint.load(json.load(open("spec.json")))
print(json.dumps([name for name in sys.modules if name.startswith("ptq_dynamics")]))
"""


def test_a_job_does_not_run_the_code_of_another_checkout(here, capsys):
    spec = specification(here.plan.trajectories.train("trunk"))
    (here.folder / "workflow/ptq_dynamics").mkdir(parents=True)
    with chdir(here.folder):
        assert execute(spec) == 1
    line = one_error(capsys.readouterr().err)
    assert f"the code that runs is that of another checkout, {ROOT};" in line
    assert visible(here.folder / spec["folder"]) == {}


# Full disk

FULL_DISK = """
import json, sys
from pathlib import Path
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.execute import execute
from ptq_dynamics.engine.paths import Paths
for spec in json.load(open(sys.argv[1])):
    print("job", spec["stage"], spec["folder"], file=sys.stderr, flush=True)
    status = execute(spec)
    seen = [str(p) for p in Path(spec["folder"]).rglob("*")
            if p.is_file() and not any(part.startswith(".") for part in p.parts)]
    print("result", json.dumps([status, seen]), file=sys.stderr, flush=True)
"""


@pytest.fixture(scope="module")
def full_disk(workspace, trunk, tmp_path_factory):
    """What jobs say, by stage, whose results do not fit onto a file system of 48 KiB."""
    if run_process(["unshare", "-Urm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no file system of one's own can be mounted here")
    folder = tmp_path_factory.mktemp("full")
    plan = workspace.plan
    copy_results(
        workspace.folder,
        folder,
        [plan.corpora.corpus("main").folder, plan.trajectories.train("trunk").folder],
    )
    jobs = [
        plan.corpora.corpus("main"),
        plan.trajectories.train("trunk"),
        plan.trajectories.average("lawa"),
        plan.quantization.quantize("trunk", "rtn3", "all"),
    ]
    specs = [{**specification(job), "folder": f"small/{n}"} for n, job in enumerate(jobs)]
    (folder / "small").mkdir()
    (folder / "specs.json").write_text(json.dumps(specs))
    (folder / "code.py").write_text(FULL_DISK)
    mount = 'mount -t tmpfs -o size=48k tmpfs small && exec "$@"'
    command = ["unshare", "-Urm", "sh", "-c", mount, "sh"]
    done = python(["code.py", "specs.json"], folder, prefix=command)
    assert done.stderr.count("result ") == len(specs), done.stderr
    parts = done.stderr.split("job ")[1:]
    return {part.split()[0]: part for part in parts}


@pytest.mark.parametrize("stage", ["corpus.corpus", "train.train", "train.average", "quantize.rtn"])
def test_a_full_disk_is_one_clear_line_and_no_half_result(full_disk, stage):
    said, _, result = full_disk[stage].partition("result ")
    status, seen = json.loads(result.splitlines()[0])
    assert (status, seen) == (1, []), said
    line = one_error(said)
    assert line.startswith(f"error: {stage} ")
    assert "the disk is full; free some space" in line


# The warm process


def listens():
    """Whether a job that begins now is heard."""
    return os.path.exists(os.environ[client.VARIABLE])


# Those of training, and so not those that figures are drawn with.
LIBRARIES = {"torch", "transformers"}


@pytest.fixture(scope="module")
def warm():
    before = dict(os.environ)
    launch.start(LIBRARIES)
    assert listens()
    yield launch._servers[-1]
    server = launch._servers.pop()
    server.stdin.close()
    assert server.wait(timeout=20) == 0
    os.environ.clear()
    os.environ.update(before)


def test_a_warm_process_whose_build_has_ended_imports_no_further():
    code = "import sys; from ptq_dynamics.engine.warm.prime import prime; "
    code += "print(prime({'pandas'}, lambda: False), 'pandas' in sys.modules)"
    assert python(["-c", code], ROOT).stdout == "False False\n"


def test_the_warm_process_gives_the_bytes_of_a_plain_one(warm, here, trunk, rtn):
    assert warm.poll() is None
    plan = here.plan
    jobs = [
        (plan.trajectories.train("trunk"), trunk),
        (plan.quantization.quantize("trunk", "rtn3", "all"), rtn),
    ]
    with chdir(here.folder):
        for job, plain in jobs:
            assert client.delegate(specification(job)) == 0, (here.folder / log_of(job)).read_text()
            warm_result = here.manifest(job)
            assert warm_result.text() == plain.text(), job.name
            assert not differing(artifacts(plain.folder), artifacts(warm_result.folder))


@pytest.fixture
def mortal(monkeypatch):
    """A warm process that a test may kill."""
    monkeypatch.setenv(client.VARIABLE, "")
    launch.start(LIBRARIES)
    server = launch._servers.pop()
    assert listens()
    yield server
    server.kill()
    server.wait()


def children(process):
    """Process ids of a process's children."""
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(child) for child in listed.split()]


def start_job(here, spec):
    """A job in a process of its own, which hands it to the warm process."""
    command = [
        sys.executable,
        "-m",
        "ptq_dynamics.engine.run",
        "--job",
        job_file(here.folder, spec),
    ]
    return Popen(command, cwd=here.folder, stderr=PIPE, text=True)


def start_long_job(here):
    """A training run of seconds that has begun, and its specification."""
    spec = specification(
        here.plan.trajectories.train("trunk"), last=1000, checkpoint_steps=[*range(100, 1001, 100)]
    )
    process = start_job(here, spec)
    work = here.folder / spec["folder"]
    begins = lambda: list(work.glob(".work-*/out/step-*"))  # noqa: E731
    wait_until(begins, "training does not begin")
    assert process.poll() is None
    return process, spec


def test_a_job_that_the_warm_process_dies_with_is_done_without_it(mortal, here, trunk):
    """The server is stopped before it takes the job, and then killed."""
    job = here.plan.trajectories.train("trunk")
    mortal.send_signal(signal.SIGSTOP)
    client_ = start_job(here, specification(job))
    wait_until(lambda: connected(client_), "the job finds no warm process")
    mortal.kill()
    said = client_.communicate()[1]
    assert client_.returncode == 0, said
    assert not differing(artifacts(trunk.folder), artifacts(here.folder / job.folder))


def connected(process):
    """Whether a process has a connected Unix socket."""
    sockets = Path("/proc/net/unix").read_text()
    with contextlib.suppress(FileNotFoundError):
        for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
            kind, _, inode = os.readlink(descriptor).rstrip("]").partition(":[")
            if kind == "socket" and f" 03 {inode}" in sockets:
                return True
    return False


def test_a_job_goes_on_when_the_warm_process_is_killed(mortal, here):
    client_, spec = start_long_job(here)
    mortal.kill()
    mortal.wait()
    assert client_.poll() is None
    said = client_.communicate()[1]
    assert client_.returncode == 0, said
    made = manifest.read(Paths.at(here.folder / spec["folder"]).manifest)
    assert "step-0001000/model.safetensors" in made.files


def test_a_job_that_is_killed_in_the_warm_process_is_one_line(mortal, here):
    client_, spec = start_long_job(here)
    (child,) = children(mortal)
    os.kill(child, signal.SIGKILL)
    line = one_error(client_.communicate()[1])
    assert client_.returncode == signals.KILLED
    assert line.startswith("error: train.train trunk seed 100: its process was killed")
    assert visible(here.folder / spec["folder"]) == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_job_of_the_warm_process_in_one_line(warm, here, number):
    client_, spec = start_long_job(here)
    client_.send_signal(number)
    said = client_.communicate(timeout=20)[1]
    assert client_.returncode == 1
    assert one_error(said).endswith("interrupted; run the same command again to go on")
    wait_until(lambda: not children(warm), "the job goes on")
    assert visible(here.folder / spec["folder"]) == {}


@pytest.mark.parametrize("sent", [b"", b"!", b"{"])
def test_the_warm_process_survives_a_client_that_leaves(warm, here, sent):
    address = os.environ[client.VARIABLE]
    for _ in range(3):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(address)
            connection.sendall(sent)
    wait_until(lambda: not children(warm), "a child stays")
    assert os.path.exists(address) and warm.poll() is None
    job = here.plan.losses.evaluate("trunk", "fp", "all")
    with chdir(here.folder):
        assert client.delegate(specification(job)) == 1, "nobody serves"


@pytest.mark.parametrize("libraries", [{"pandas"}, {"torch", "bitsandbytes"}, {"llmcompressor"}])
def test_what_the_jobs_do_not_compute_with_is_not_imported_ahead(libraries, tmp_path):
    found = python(["-c", PRIMED, *libraries], tmp_path)
    assert found.returncode == 0, found.stderr
    heavy = {"pandas", "torch", "transformers", "bitsandbytes", "llmcompressor", "seaborn"}
    imported = heavy & set(found.stdout.split())
    # Others may come with those that were asked for.
    allowed = {"pandas": {"pandas"}, "torch": heavy - {"llmcompressor", "seaborn"}}
    most = set().union(*(allowed.get(name, heavy) for name in libraries))
    assert libraries <= imported <= most


PRIMED = """
import sys
from ptq_dynamics.engine.warm.prime import prime
prime(sys.argv[1:])
print(*sys.modules)
"""


def test_a_job_names_the_libraries_that_it_computes_with(workspace):
    train = workspace.plan.trajectories.train("trunk")
    assert {"torch", "transformers"} <= train.libraries, train.libraries
    assert train.libraries.isdisjoint({"llmcompressor", "seaborn", "bitsandbytes"})
    assert "llmcompressor" in workspace.plan.quantization.quantize("trunk", "gptq3").libraries
    corpus = workspace.plan.corpora.corpus("main")
    assert corpus.libraries.isdisjoint(corpus.distributions) and corpus.distributions


def test_where_the_path_of_a_socket_is_too_long_there_is_no_warm_process(tmp_path, monkeypatch):
    folder = tmp_path / ("long" * 25)
    folder.mkdir()
    monkeypatch.setenv(client.VARIABLE, "")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    known = list(launch._servers)
    launch.start(LIBRARIES)
    assert launch._servers == known and os.environ[client.VARIABLE] == ""
    assert not list(folder.iterdir())


def test_a_problem_in_the_warm_process_is_a_status_and_one_line(warm, here, capfd):
    job = here.plan.losses.evaluate("trunk", "fp", "all")
    with chdir(here.folder):
        assert client.delegate(specification(job)) == 1
    assert "manifest.json is missing" in one_error(capfd.readouterr().err)
    assert visible(here.folder / job.folder) == {}


def test_a_plain_process_serves_where_there_is_no_warm_one(workspace, trunk, tmp_path):
    """Here the job is that of an earlier result's record."""
    plan = workspace.plan
    job = plan.losses.evaluate("trunk", "fp")
    expected = artifacts(workspace.build(job).folder)
    copy_results(
        workspace.folder,
        tmp_path,
        [plan.corpora.corpus().folder, plan.trajectories.train("trunk").folder],
    )
    nowhere = {client.VARIABLE: str(tmp_path / "no-socket")}
    known = workspace.folder / job.paths.record
    done = python(["-m", "ptq_dynamics.engine.run", "--job", str(known)], tmp_path, nowhere)
    assert done.returncode == 0, done.stderr
    assert expected and not differing(expected, artifacts(tmp_path / job.folder))


def test_a_job_leaves_the_work_folders_of_jobs_with_longer_names(tmp_path):
    mine, other = (Paths(tmp_path, stem) for stem in ("fig", "fig.b"))
    for paths in (mine, other):
        paths.work("0123456789abcdef" * 4, "89abcdef0123").mkdir()
    assert mine.works() == [tmp_path / ".work-fig.0123456789abcdef-89abcdef"]
    assert other.works() == [tmp_path / ".work-fig.b.0123456789abcdef-89abcdef"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_a_job_is_under_way_is_one_line(tmp_path, number):
    code = "import os, time; from ptq_dynamics.engine import signals; signals.leave_at_once('left')"
    done = python(["-c", f"{code}; os.kill(os.getpid(), {int(number)}); time.sleep(9)"], tmp_path)
    assert done.returncode == 1
    assert done.stderr == "left\n"


SWALLOWED = """
import os, signal, time
from ptq_dynamics.engine import signals

class Late:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)

with signals.ending("a job", 0.5):
    late = Late()
    del late
    time.sleep(20)
"""


def test_an_interrupt_that_is_swallowed_ends_a_job_in_one_line(tmp_path):
    done = python(["-c", SWALLOWED], tmp_path)
    assert done.returncode == 1
    assert done.stderr == f"error: a job: {signals.INTERRUPTED}\n"
