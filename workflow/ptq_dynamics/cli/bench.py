"""Measure what later changes are compared by: `python -m ptq_dynamics.cli.bench --scale laptop`."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from ptq_dynamics import config, models
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus import splits
from ptq_dynamics.corpus.embedded import save_tokenizer, train_tokenizer
from ptq_dynamics.corpus.tokens import TrainingData
from ptq_dynamics.engine import checkout, manifest
from ptq_dynamics.engine.quiet import QUIET
from ptq_dynamics.engine.settings import decode, encode
from ptq_dynamics.engine.warm.launch import ALLOCATOR
from ptq_dynamics.graph import Plan
from ptq_dynamics.measure import loss
from ptq_dynamics.quantize import gptq
from ptq_dynamics.quantize.method import Calibration
from ptq_dynamics.train.train import Trainer

SECONDS = 5.0  # per measurement
Row = tuple[str, str]


def main() -> None:
    """Print one row a measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", choices=config.scales(), default="laptop")
    scale = parser.parse_args().scale
    if not os.environ.keys() >= ALLOCATOR.keys():
        command = [sys.executable, "-m", "ptq_dynamics.cli.bench", "--scale", scale]
        # As in a build: libraries read these when a process starts.
        os.execve(sys.executable, command, {**os.environ, **ALLOCATOR, **QUIET})
    try:
        checkout.check(Path())
    except Problem as problem:
        sys.exit(f"error: {problem}")
    torch.set_num_threads(1)
    plan = Plan(config.load({"scale": scale, "seed": 0, "figures": "all"}, Path("config")))
    table = Table("measurement", "value", title=f"scale {scale}, one thread")
    with tempfile.TemporaryDirectory() as folder:
        for row in (*_compute(plan, Path(folder)), *_planning(scale), *_graph(Path(folder))):
            table.add_row(*row)
    Console().print(table)


def _compute(plan: Plan, folder: Path) -> Iterator[Row]:
    """Training, evaluation and quantization of a fresh model on random tokens."""
    job = plan.trajectories.train(next(iter(plan.site.config.runs.runs))).settings
    context, vocabulary = job.context, job.vocabulary
    generator = np.random.default_rng(0)
    stored = splits.dtype(vocabulary)
    stream = generator.integers(0, vocabulary, 400 * context + 1, dtype=stored)
    (folder / "corpus").mkdir()
    stream.tofile(folder / "corpus" / splits.file_name("train"))
    about = {splits.DTYPE: stored.name}
    corpus = manifest.describe(folder / "corpus", folder / "corpus/manifest.json", about)
    save_tokenizer(train_tokenizer(["a text for a tokenizer"], 257), folder / "tokenizer")
    trainer = Trainer(job, folder, folder / "tokenizer")
    data = TrainingData(corpus, context, job.batch, 0)
    trainer.update(data.at(0))
    steps, seconds = _repeat(lambda: trainer.update(data.at(trainer.step)))
    yield "training", f"{steps * trainer.tokens_per_step / seconds:,.0f} tokens/s"
    trainer.model.save_pretrained(folder / "model")
    model = models.load(folder / "model")
    blocks = torch.from_numpy(stream[:-1].astype(np.int64).reshape(-1, context))
    batch = plan.site.config.scale.evaluation.batch
    passes, seconds = _repeat(lambda: loss.block_losses(model, blocks, batch))
    yield "evaluation", f"{passes * blocks.numel() / seconds:,.0f} tokens/s"
    quantization = plan.quantization.quantize("wsd-3e-3", "gptq-4bit", _last(plan))
    settings = decode(gptq.run, encode(quantization.settings)).quantizer
    sizes = plan.site.config.scale.calibration
    count = sizes.documents or sizes.count(context)
    calibration = Calibration(blocks[:count], sizes.batch)
    gptq.quantize(folder / "model", calibration, settings)
    count, seconds = _repeat(lambda: gptq.quantize(folder / "model", calibration, settings))
    yield "GPTQ", f"{seconds / count:.2f} s/checkpoint"


def _last(plan: Plan) -> str:
    return list(plan.site.timeline.shards("wsd-3e-3"))[-1]


def _repeat(action: Callable[[], object]) -> tuple[int, float]:
    count, start = 0, time.perf_counter()
    while (seconds := time.perf_counter() - start) < SECONDS:
        action()
        count += 1
    return count, seconds


def _planning(scale: str) -> Iterator[Row]:
    command = [_snakemake(), "-n", "--quiet", "all", "--config", f"scale={scale}"]
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    yield "planning", f"{time.perf_counter() - start:.1f} s"


def _graph(folder: Path) -> Iterator[Row]:
    """The whole graph at scale smoke, in a folder of its own."""
    target = folder / "smoke"
    target.mkdir()
    command = [_snakemake(), "-s", str(Path("Snakefile").resolve()), "--directory", str(target)]
    start = time.perf_counter()
    subprocess.run([*command, "--config", "scale=smoke"], check=True, capture_output=True)
    wall = time.perf_counter() - start
    records = [json.loads(path.read_text()) for path in target.rglob("*record.json")]
    busy = sum(record["seconds"] for record in records)
    cores = os.cpu_count() or 1
    yield "whole graph at smoke", f"{wall:.0f} s, {len(records)} jobs"
    yield "share of that not in jobs", f"{1 - busy / (wall * cores):.0%} of {cores} cores"


def _snakemake() -> str:
    return str(Path(sys.executable).with_name("snakemake"))


if __name__ == "__main__":
    main()
