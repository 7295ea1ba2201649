"""Checkpoints of a Trainer, and of the workflow itself, measured by one command."""

import csv
import os
import signal
import sys
import time
from pathlib import Path
from shutil import copytree, ignore_patterns
from subprocess import PIPE, STDOUT, Popen, run

import pytest
import tiny
import torch
from gguf import GGMLQuantizationType
from ggufs import written
from ptq_dynamics import MeasureCallback, measurements, models
from ptq_dynamics.corpus.sources.embedded import train_tokenizer
from safetensors.torch import load_file, save_file
from tiny import create
from transformers import PreTrainedTokenizerFast, TrainerCallback

COLUMNS = ["quantizer", "checkpoint_id", "metric", "value", "stderr", "checkpoint"]
PICTURE = "figures/own/quantization.png"
OUTPUTS = ["README.md", PICTURE, "results/own/measurements.csv"]


def train(folder, steps, every, callbacks=(), **more):
    """A tiny Llama by transformers' Trainer, warmup, stable phase and decay."""
    documents = [found.__doc__ or "" for found in vars(torch).values()]
    documents = [text for text in documents if isinstance(text, str) and len(text) > 200]
    ours = train_tokenizer(documents, 300)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=ours, eos_token="<|endoftext|>")
    tokens = torch.tensor([i for text in documents for i in tokenizer(text)["input_ids"]])
    options = {
        **{"max_steps": steps, "save_steps": every, "logging_steps": every // 5},
        **{"per_device_train_batch_size": 8, "include_num_input_tokens_seen": "all"},
        **{"lr_scheduler_type": "warmup_stable_decay", "warmup_steps": every // 5},
        **{"lr_scheduler_kwargs": {"num_decay_steps": steps // 3}, **more},
    }
    rows = tokens.split(64)[:-1]
    tiny.train(folder, create(vocab_size=300), rows, callbacks, tokenizer, **options).save_model()
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(tmp_path_factory.mktemp("trainer") / "run", 120, 10)


def ptq(*words):
    """Run the command."""
    command = [sys.executable, "-m", "ptq_dynamics.cli", *map(str, words)]
    return run(command, capture_output=True, text=True, check=False)


def measure(place, out, *options):
    """Measure checkpoints, which must succeed; what is printed."""
    done = ptq("measure", place, "--out", out, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rows_of(path):
    return list(csv.DictReader(Path(path).open(encoding="utf-8")))


def made(out):
    """When each result was made, by its record."""
    return {path: path.stat().st_mtime_ns for path in out.rglob("*record.json")}


OPTIONS = ("--exclude", "checkpoint-9*", "--bits", "3", "--tokens", "4096", "--seed", "7")
NORM = "model.norm.weight"


def scaled(checkpoint, factor):
    """Multiply weights of a checkpoint."""
    weights = checkpoint / "model.safetensors"
    content = load_file(weights)
    save_file(content | {NORM: content[NORM] * factor}, weights, metadata={"format": "pt"})


@pytest.fixture(scope="module")
def defective(trained, tmp_path_factory):
    """A run whose last checkpoint is defective, the project in which it was measured, what was
    printed, and the page."""
    folder = tmp_path_factory.mktemp("measured")
    run_, out = folder / "run", folder / "out"
    for step in (60, 90, 120):
        copytree(trained / f"checkpoint-{step}", run_ / f"checkpoint-{step}")
    scaled(run_ / "checkpoint-120", float("nan"))
    said = measure(run_, out, *OPTIONS)
    return run_, out, said, (out / OUTPUTS[0]).read_text()


@pytest.fixture(scope="module")
def measured(trained, defective):
    """The same once all are whole, with averages of two."""
    run_, out, *_ = defective
    options = (*OPTIONS, "--average", "2")
    others = [path.name for path in trained.glob("checkpoint-*") if path.name != "checkpoint-120"]
    copytree(trained, run_, dirs_exist_ok=True, ignore=ignore_patterns(*others))
    return out, options, measure(run_, out, *options)


def test_one_command_gives_picture_table_and_words(measured):
    out, _, said = measured
    assert all((out / name).is_file() for name in OUTPUTS)
    assert "run is left out: its weights are those of checkpoint-120" in said
    assert "2 checkpoints of llama" in said and "the first checkpoint took" in said
    assert "3-bit GPTQ: the error is" in said and "The average of the last 2 has an error" in said
    assert "of docstrings in blocks of 64. Blocks begin without BOS" in said
    assert "gptq-3bit is GPTQ with 3 bits and groups of 32 weights." in said
    rows = rows_of(out / OUTPUTS[2])
    runs = [row for row in rows if row["trajectory"] == "run" and row["metric"] == "loss"]
    full = [row for row in runs if row["quantizer"] == "fp"]
    assert [row["step"] + row["phase"] for row in full] == ["60stable", "120cooldown"]
    assert [int(row["tokens"]) for row in full] == [60 * 8 * 64, 120 * 8 * 64]
    assert float(full[0]["lr"]) == 3e-3 and float(full[-1]["lr"]) == 0.0
    assert {row["step"] for row in rows if row["trajectory"] == "last-2"} == {"120"}
    table = measurements(trajectories=["run"], metrics=["loss"], project=out)  # from elsewhere
    assert table.value.tolist() == [float(row["value"]) for row in full]


def test_a_defective_checkpoint_is_on_the_page_and_measured_once_it_is_whole(defective, measured):
    run_, out, said, page = defective
    line = f"- {run_}/checkpoint-120 is left out: it has values"
    assert line in page and line[2:] in said and "1 checkpoint of llama" in page
    # One checkpoint has no neighbours, so a second calibration set shows the scatter.
    assert "3-bit GPTQ: the error is" in page and "with another calibration set it is" in page
    page = (out / OUTPUTS[0]).read_text()
    assert "it has values" not in page and "2 checkpoints of llama" in page
    assert "calibration set it is" not in page


def test_again_it_does_nothing_and_then_only_what_changed(defective, measured):
    run_, _, *_ = defective
    out, options, _ = measured
    before = made(out)
    measure(run_, out, *options)
    assert made(out) == before
    # One is touched, but the same: it is read again. The other has other weights. A rate is drawn,
    # and nothing is measured again for it.
    os.utime(run_ / "checkpoint-120/model.safetensors")
    scaled(run_ / "checkpoint-60", 1.5)
    measure(run_, out, *options, "--lr", "1e-3", "--tokens-per-step", "10")
    again = {
        str(path.parent.relative_to(out / "results/own"))
        for path, when in made(out).items()
        if before[path] != when and path.name == "record.json"
    }
    assert "measure/run/seed-7/fp/step-0000060" in again
    assert "fetch/run/step-0000120" in again
    assert "measure/run/seed-7/fp/step-0000120" not in again
    assert "measure/last-2/seed-7/fp/step-0000120" in again
    rows = rows_of(out / OUTPUTS[2])
    assert {row["lr"] for row in rows if row["trajectory"] == "run"} == {"0.001"}
    assert {row["tokens"] for row in rows} == {"600", "1200"}


def test_a_lone_checkpoint_is_measured(trained, tmp_path):
    measure(trained / "checkpoint-60", tmp_path, "--methods", "q4_0", "--tokens", "1024")
    assert "q4_0 is GGUF" in (tmp_path / OUTPUTS[0]).read_text()


def test_a_run_is_watched_while_it_trains_and_deletes_checkpoints(tmp_path, capfd):
    """The training waits for the page of each checkpoint, so that it deletes what was measured."""
    out = tmp_path / "out"

    class Waiting(TrainerCallback):
        def on_save(self, args, state, control, **_):
            until = time.monotonic() + 900
            while f"  {state.global_step}  " not in self.page() and time.monotonic() < until:
                time.sleep(0.2)

        @staticmethod
        def page():
            return (out / "README.md").read_text() if (out / "README.md").exists() else ""

    options = ("--methods", "rtn", "--bits", "3", "--tokens", "2048", "--average", "2")
    callbacks = [MeasureCallback("--out", str(out), *options), Waiting()]
    train(tmp_path / "run", 15, 5, callbacks, save_total_limit=2)
    assert not (tmp_path / "run/checkpoint-5").exists()
    # From the second checkpoint on, earlier ones tell how long it takes.
    assert "".join(capfd.readouterr()).count("Job stats") == 3
    rows = rows_of(out / OUTPUTS[2])
    shown = {(r["trajectory"], r["step"]) for r in rows if r["quantizer"] == "rtn-3bit"}
    assert shown == {("run", "5"), ("run", "10"), ("run", "15"), ("last-2", "10"), ("last-2", "15")}
    assert "Measured before deletion: checkpoint-5" in Waiting.page()
    assert not [*out.glob("results/own/average/*/*/*/*.safetensors")]
    # What was deleted cannot be measured under another quantizer.
    options = ("--methods", "rtn", "--bits", "4", "--tokens", "2048", "--average", "0")
    said = measure(tmp_path / "run", out, *options)
    assert "step-0000005 of run is left out: it was deleted" in said


def test_a_signal_to_the_command_alone_ends_its_build(trained, tmp_path):
    command = [sys.executable, "-m", "ptq_dynamics.cli", "measure", str(trained)]
    with Popen([*command, "--out", str(tmp_path / "out")], stdout=PIPE, stderr=STDOUT) as call:
        while b"Job stats" not in call.stdout.readline():
            assert call.poll() is None
        call.terminate()
        call.stdout.read()  # ends with the last process that writes into the pipe
    assert call.returncode == -signal.SIGTERM and not (tmp_path / "out").exists()


def test_two_runs_have_one_picture_and_a_verdict(trained, tmp_path):
    """Also where the rate of one checkpoint is unknown."""
    (tmp_path / "lr.csv").write_text("step,lr\n10,3e-3\n20,3e-3\n")
    capital = {"type": "Replace", "pattern": {"String": "the"}, "content": "The"}
    for name, steps, normalizer in (("short", (10, 20), None), ("long", (10, 20, 30), capital)):
        for step in steps:
            path = copytree(trained / f"checkpoint-{step}", tmp_path / name / f"checkpoint-{step}")
            tiny.edit(path / "tokenizer.json", normalizer=normalizer)
    options = ("--names", "a b", "--methods", "rtn", "--bits", "3", "--average", "0")
    options += ("--tokens", "1024", "--lr", str(tmp_path / "lr.csv"))
    measure(tmp_path / "short", tmp_path / "out", str(tmp_path / "long"), *options)
    page = (tmp_path / "out/README.md").read_text()
    assert "At the end its error minus that of a is" in page
    assert "whether they differ cannot be told; " in page
    assert "The rate is not known to have decayed" in page
    assert "split the text differently: compare no losses per token." in page
    drawn = rows_of(tmp_path / "out" / PICTURE.replace(".png", ".csv"))
    levels = {f"{name} (last at the peak rate, mean)" for name in "ab"}
    assert {row["curve"] for row in drawn} == {"a", "b", *levels}


def test_the_picture_is_traced_to_the_files_of_checkpoints(measured):
    out, _, _ = measured
    done = ptq("trace", str(out / PICTURE).replace(".png", ".csv:1"))
    assert done.returncode == 0, done.stdout + done.stderr
    for words in ("local run", "corpus run", "results/own/measurements.csv:"):
        assert words in done.stdout


def test_numbers_are_those_of_the_workflow_where_text_and_settings_are(built, tmp_path):
    folder, results = tmp_path / "run", built.folder / "results/smoke"
    theirs = {
        tuple(row[name] for name in COLUMNS)
        for row in rows_of(results / "measurements.csv")
        if row["trajectory"] in ("constant-3e-3", "rainbow-138") and row["seed"] == "201"
        if row["quantizer"] in ("fp", "gptq-4bit")
    }
    folder.mkdir()
    # From where the cooldown begins, those of it.
    for name in ("rainbow-138", "constant-3e-3"):
        for path in (results / "train" / name / "seed-201").glob("step-*"):
            if path.name in {row[1] for row in theirs} and not (folder / path.name).exists():
                (folder / path.name).symlink_to(path)
    options = ("--scale", "smoke", "--bits", "4", "--last", "2")
    said = measure(folder, tmp_path / "out", *options)
    rows = rows_of(tmp_path / "out" / OUTPUTS[2])
    # The page of own checkpoints compares predictions, too.
    beside = {"kl_divergence", "top1_agreement"}
    assert beside <= {row["metric"] for row in rows}
    ours = {tuple(row[n] for n in COLUMNS) for row in rows if row["metric"] not in beside}
    assert len(ours) == 8 and ours <= theirs
    tokens = "The number of tokens of 2 of 2 checkpoints is not known; give --tokens-per-step."
    assert said.count(tokens) == 1
    assert "run has 2 checkpoints, too few for an average of 5; give --average 2" in said


def test_the_page_has_numbers_settings_and_what_is_left_out_also_of_a_gguf_file(trained, tmp_path):
    """A file with rounded layers has the loss of the method that rounds them."""
    run_, out = tmp_path / "run", tmp_path / "out"
    for source, target in ((60, "checkpoint-60"), (120, "checkpoint-120"), (120, "final")):
        copytree(trained / f"checkpoint-{source}", run_ / target)
        # Tasks read more tokens than the model was trained with.
        config = run_ / target / "config.json"
        longer = '"max_position_embeddings": 128'
        config.write_text(config.read_text().replace('"max_position_embeddings": 64', longer))
    model = models.load(run_ / "checkpoint-120")
    written(model, run_ / "mine.gguf", GGMLQuantizationType.Q4_0)
    options = ("--methods", "rtn q4_0 mine.gguf", "--bits", "3", "--tokens", "4096")
    done = ptq("measure", run_, "--out", out, *options, "--average", "0")
    assert "mine.gguf is of one checkpoint" in done.stderr and done.returncode
    measure(run_, out, *options, "--last", "1", "--tasks", "word")
    page, table = (out / OUTPUTS[0]).read_text(), rows_of(out / OUTPUTS[2])
    values = {
        (row["quantizer"], row["metric"]): row
        for row in table
        if row["metric"] in ("loss", "kl_divergence", "top1_agreement", "accuracy")
    }
    for metric, factor, form in (("kl_divergence", 1, ".4g"), ("top1_agreement", 100, ".2f")):
        for name in ("rtn-3bit", "q4_0", "mine.gguf"):
            row = values[name, metric]
            mean, error = (factor * float(row[key]) for key in ("value", "stderr"))
            assert f"{mean:{form}} ± {error:{form}}" in page
        ours, theirs = (float(values[name, metric]["value"]) for name in ("mine.gguf", "q4_0"))
        assert ours == pytest.approx(theirs, abs=1e-6)
    for name in ("fp", "rtn-3bit", "q4_0", "mine.gguf"):
        row = values[name, "accuracy"]
        assert f"{100 * float(row['value']):.1f} ± {100 * float(row['stderr']):.1f}" in page
    for words in (
        "q4_0 is GGUF with 4 bits and groups of 32 weights.",
        "mine.gguf is GGUF with 4 bits.",
        "Bits are those of a code, without scales.",
        f"- {run_}/final is left out: its weights are those of checkpoint-120",
    ):
        assert words in page
