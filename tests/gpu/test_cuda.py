"""What only a GPU shows: its losses beside the CPU's, leases, the warm process, nccl, memory."""

import os
import sys
import time
from contextlib import chdir
from datetime import datetime
from subprocess import PIPE, Popen

import pandas as pd
import pytest
import torch
from ptq_dynamics.corpus.tokens import TrainingData
from ptq_dynamics.engine import manifest, record
from ptq_dynamics.engine.lease import LEASED, SHARED, VISIBLE
from ptq_dynamics.engine.run import VARIABLE, delegate
from ptq_dynamics.engine.warm import ALLOCATOR, HIDDEN
from ptq_dynamics.measure.names import LAYERS, LOSSES, OUTPUT_ERROR
from ptq_dynamics.quantize.tool import ForeignGptq
from ptq_dynamics.train.trainer import Trainer, state_name
from safetensors.torch import load_file
from support import ROOT, copy_results, job_file, measured, plan, python, specification, wait_until
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.gpu

STEPS = 12
# Nats/token: bfloat16 has 8 bits of mantissa, and a loss of 5.7 nats is rounded nowhere to them.
MIXED = 0.02
# Nats/token between the losses of a checkpoint on two devices: in full precision, and of weights
# that a rounding near a tie changes.
FULL, ROUNDED = 1e-4, 0.002
# Relative difference of the mean squared errors of outputs, which hardly any rounding changes.
ERROR, LEARNED_ERROR = 0.05, 0.25
EXECUTE = """
import json, sys
from ptq_dynamics.engine.execute import execute
sys.exit(max(execute(json.load(open(name))) for name in sys.argv[1:]))
"""


@pytest.fixture
def make(workspace, tmp_path):
    """Trainers with changes to the trunk's settings, each in a folder of its own."""
    job = workspace.plan.trajectories.train("trunk")
    corpus = workspace.manifest(workspace.plan.trajectories.corpus("main"))

    def do(name, **changes):
        (tmp_path / name).mkdir()
        return Trainer(
            job.settings.model_copy(update=changes), tmp_path / name, corpus.subfolder("tokenizer")
        )

    return do


@pytest.fixture
def data(workspace):
    settings = workspace.plan.trajectories.train("trunk").settings
    corpus = workspace.manifest(workspace.plan.trajectories.corpus("main"))
    return TrainingData(corpus, settings.context, settings.batch, settings.seed)


def losses(trainer, data, steps):
    return torch.stack([trainer.update(data.at(step))[0].cpu() for step in steps])


# Training


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_precision_and_compiler_change_losses_little(make, data, kind, precision, compiled):
    if not compiled and precision == "float32":
        pytest.skip("this is what the others are compared with")
    plain = losses(make("plain", precision="float32", compile=False), data, range(STEPS))
    trainer = make("other", precision=precision, compile=compiled)
    assert trainer.device.type == kind
    apart = (losses(trainer, data, range(STEPS)) - plain).abs().max()
    assert apart <= (MIXED if precision == "bfloat16" else 1e-3), apart


def test_a_run_resumes_from_its_state(make, data, tmp_path):
    whole, first, second = make("whole"), make("first"), make("second")
    expected = losses(whole, data, range(STEPS))
    losses(first, data, range(STEPS // 2))
    first.save(tmp_path / state_name(STEPS // 2))
    second.load(tmp_path / state_name(STEPS // 2))
    apart = (losses(second, data, range(STEPS // 2, STEPS)) - expected[STEPS // 2 :]).abs().max()
    assert apart <= 1e-4, apart


def test_dropped_weights_come_back(workspace, tmp_path, kind):
    job, corpus = (getattr(workspace.plan.trajectories, n) for n in ("train", "corpus"))
    job, corpus = job("trunk"), corpus("main")
    copy_results(workspace.folder, tmp_path, [corpus.folder, job.folder])
    made = manifest.read(tmp_path / job.manifest)
    gone = [name for name in made.files if name.endswith(".safetensors")]
    made.drop(gone)
    place = str(job.paths.record)
    with chdir(tmp_path):
        known = record.read(job.paths.record)
        assert known.device.kind == kind
        restored = python(["-m", "ptq_dynamics.engine.run", place, "--restore"], tmp_path)
        assert restored.returncode == 0, restored.stderr
        now = record.read(job.paths.record)
        assert all((made.folder / name).exists() for name in gone)
    # Other bits are named, and the curve says how near they are.
    assert now.files == known.files or "loss at the end" in now.second


def test_nccl_averages_gradients_as_one_process_computes_them(make, data, kind, tmp_path):
    expected = losses(make("alone"), data, range(STEPS))
    backend = "nccl" if kind == "cuda" else "gloo"
    distributed.init_process_group(
        backend, init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1
    )
    try:
        trainer = make("joined")
        trainer._joined = trainer._cost = DistributedDataParallel(trainer._cost)
        apart = (losses(trainer, data, range(STEPS)) - expected).abs().max()
    finally:
        distributed.destroy_process_group()
    assert apart <= 1e-4, apart


# Measuring


def quantizers():
    """Names of the quantizers of the main environment, without their further draws."""
    known = plan("smoke").site.config.quantizers
    return [
        n for n, each in known.items() if not isinstance(each, ForeignGptq) and "-draw-" not in n
    ]


def test_quantizers_lose_on_a_gpu_what_they_lose_on_a_cpu(workspace, tmp_path, kind):
    # One process for each device has all jobs.
    planned, trunk = workspace.plan, workspace.plan.trajectories.train("trunk")
    last = manifest.read(workspace.folder / trunk.manifest).facts["checkpoints"][-1]["id"]
    names, processes = quantizers(), {}
    jobs = {n: planned.measurements.measure("trunk", n, "all", 100) for n in ("fp", *names)}
    for device, given in ((kind, {}), ("reference", {VISIBLE: ""})):
        copied = [planned.trajectories.corpus("main").folder, trunk.folder]
        copy_results(workspace.folder, tmp_path / device, copied)
        change = {"checkpoints": (last,), "tasks": ()}
        files = [job_file(tmp_path / device, specification(job, **change)) for job in jobs.values()]
        how = {"cwd": tmp_path / device, "env": {**os.environ, **given}, "stderr": PIPE}
        processes[device] = Popen([sys.executable, "-c", EXECUTE, *files], text=True, **how)
    said = {device: process.communicate()[1] for device, process in processes.items()}
    wrong = []
    for name, job in jobs.items():
        found = [tmp_path / device / job.folder for device in processes]
        if not all((folder / LOSSES).exists() for folder in found):
            wrong.append(f"{name}: was not measured on both")
            continue
        means = [float(load_file(folder / LOSSES)[last].mean()) for folder in found]
        about = f"{name}: {means[0]:.5f} on {kind}, {means[1]:.5f} on the CPU"
        is_wrong = abs(means[0] - means[1]) > (FULL if name == "fp" else ROUNDED)
        if (found[1] / LAYERS).exists():
            errors = [pd.read_csv(folder / LAYERS)[OUTPUT_ERROR].mean() for folder in found]
            about += f"; errors of outputs {errors[0]:.3e} and {errors[1]:.3e}"
            allowed = LEARNED_ERROR if "autoround" in name else ERROR
            is_wrong |= not abs(errors[0] / errors[1] - 1) <= allowed
        print(about)
        wrong += [about] * is_wrong
    failures = [line for text in said.values() for line in text.splitlines() if "rror" in line]
    assert not wrong, "\n".join([*wrong, *failures])


# Processes


def test_two_jobs_share_a_gpu_or_wait_for_it(workspace, tmp_path, monkeypatch):
    job = workspace.plan.trajectories.train("trunk")
    corpus = workspace.plan.trajectories.corpus("main")
    monkeypatch.delenv(LEASED, raising=False)
    monkeypatch.setenv(VISIBLE, "0")
    command = [sys.executable, "-m", "ptq_dynamics.engine.run"]
    started = {}
    for shared in ("1", "2"):
        (tmp_path / f"tmp-{shared}").mkdir()
        given = {**os.environ, SHARED: shared, "TMPDIR": str(tmp_path / f"tmp-{shared}")}
        for number in range(2):
            folder = tmp_path / f"{shared}-{number}"
            copy_results(workspace.folder, folder, [corpus.folder])
            file = job_file(folder, job.spec)
            how = {"cwd": folder, "env": given, "stderr": PIPE, "text": True}
            started[shared, number] = Popen([*command, file, "--devices", "1"], **how)
    said = {key: process.communicate()[1] for key, process in started.items()}
    assert [process.returncode for process in started.values()] == [0] * 4, said
    assert not [said[key] for key in said if key[0] == "2" and "waits for a GPU" in said[key]]
    times = [record.read(tmp_path / f"1-{n}" / job.paths.record) for n in range(2)]
    first, second = sorted((datetime.fromisoformat(r.started), r.seconds) for r in times)
    # Starts are recorded in whole seconds.
    assert (second[0] - first[0]).total_seconds() >= first[1] - 1, said


def test_jobs_fork_from_the_warm_process_and_use_the_gpu(workspace, tmp_path, monkeypatch, kind):
    job, other = (workspace.plan.trajectories.train(name) for name in ("trunk", "branch"))
    corpus = workspace.plan.trajectories.corpus("main")
    copy_results(workspace.folder, tmp_path, [corpus.folder])
    monkeypatch.delenv(LEASED, raising=False)
    monkeypatch.setenv(SHARED, "2")
    address = str(tmp_path / "warm" / "socket")
    (tmp_path / "warm").mkdir()
    command = [sys.executable, "-m", "ptq_dynamics.engine.warm", address]
    command += ["0"] if kind == "cuda" else []
    environment = {**os.environ, **ALLOCATOR, **HIDDEN}
    with Popen(command, stdin=PIPE, env=environment, start_new_session=True) as server:
        try:
            wait_until(lambda: os.path.exists(address), "the warm process does not listen")
            monkeypatch.setenv(VARIABLE, address)
            with chdir(tmp_path):
                assert delegate(job.spec, "build", 1) == 0
                start = time.monotonic()
                assert delegate(other.spec, "build", 1) == 0
                seconds = time.monotonic() - start
                made = [record.read(each.paths.record) for each in (job, other)]
        finally:
            server.kill()
    assert [each.device.kind for each in made] == [kind] * 2
    # The second job imports nothing; alone it would take 13 s to begin.
    assert seconds - made[1].seconds < 5


# Last, since it takes longest.
def test_a_160m_checkpoint_is_measured_within_its_request(tmp_path, kind):
    size = "paper" if kind == "cuda" else "small"
    program = (ROOT / "tests/gpu/measure_160m.py").read_text()
    host, device, seconds = measured(program, tmp_path, tmp_path, size)
    asked = plan("paper").requests("measure", 1, {"trajectory": "constant-3e-3"})["mem_mb"]
    print(f"{size}: {host:,.0f} MiB of {asked:,} MB, {device:,.0f} MiB of the GPU, {seconds:.0f} s")
    assert host * 1.048576 <= asked
    # 0.12 GPUs per billion weights: at most one.
    assert device <= 80_000
