"""`make bench`: tokens a second of the trainer beside a plain loop over the same model, in turns.

The plain loop is nanoGPT's: rows of a memory map, torch's cross-entropy, torch's AdamW, which is
fused on a GPU alone. On a GPU it halves the micro-batch until it fits. Each turn is a process, and
the trainer's have the environment of a job. A turn is printed when it ends, and no round of turns
begins after some minutes. Then medians over turns are printed, and the range of them.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

import numpy as np
import torch
from ptq_dynamics import models
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus import tokens
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.warm import ALLOCATOR
from ptq_dynamics.train import train
from ptq_dynamics.train.trainer import Trainer
from support import plan
from torch.nn.functional import cross_entropy
from torch.utils.benchmark import Timer

TURNS, SECONDS = 5, 5.0  # of each loop; at least the seconds that a turn is timed
LONGEST = 240.0  # seconds after which no round begins; a turn takes a minute where code is compiled
# At the rates of runs, random tokens lead to denormal numbers, with which a CPU is slow.
RATE = 1e-3


def plain(settings, corpus, folder):
    """A step of the plain loop, and its micro-batch."""
    model = settings.model.create(settings.vocabulary, settings.seed).train().to(models.device())
    device, mixed = models.device(), settings.precision == "bfloat16"
    fused = device.type == "cuda"
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.1, fused=fused)
    forward = torch.compile(model, dynamic=False) if settings.compile else model
    stream, length = tokens.read_split(corpus, "train"), settings.context + 1
    size = settings.micro_batch or settings.batch

    def step():
        starts = np.random.randint(len(stream) - length, size=settings.batch)
        batch = np.stack([stream[start : start + length] for start in starts]).astype(np.int64)
        for rows in torch.from_numpy(batch).to(device).split(size):
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=mixed):
                logits = forward(rows[:, :-1], use_cache=False).logits
                loss = cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
            (loss * len(rows) / settings.batch).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    while True:
        try:
            step()
            step()  # with the optimizer's moments in memory as well
            return step, size
        except torch.OutOfMemoryError:
            if size == 1:
                raise
        size //= 2
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()


def trainer(settings, corpus, folder):
    """A step of the trainer, and its micro-batch."""
    schedule = settings.schedule.model_copy(update={"peak": RATE})
    made = Trainer(settings.model_copy(update={"schedule": schedule}), folder, folder)
    data = settings.objective.data(corpus, settings.context, settings.batch, settings.seed)
    batches = train.ahead(data, made, range(10**9))
    return lambda: made.update(next(batches)), settings.micro_batch or settings.batch


LOOPS = {"trainer": (trainer, ALLOCATOR), "plain loop": (plain, {})}


def timed(scale: str, loop: str, seconds: float = SECONDS) -> tuple[float, int]:
    """Tokens a second of a loop over the first run of figure 4 at a scale, which reads random text,
    and its micro-batch."""
    made, random = plan(scale), np.random.default_rng(0)
    torch.set_num_threads(made.site.config.scale.threads)
    name = next(iter(made.site.config.figures["fig04"].curves.values()))[0]
    settings = made.trajectories.train(name).settings
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        stream = random.integers(settings.vocabulary, size=1 << 24).astype("<u2")
        stream.tofile(folder / "train.bin")
        corpus = manifest.describe(folder, folder / "about.json", {"dtype": "uint16"})
        step, micro_batch = LOOPS[loop][0](settings, corpus, folder)
        timer = Timer("step()", globals={"step": step}, num_threads=torch.get_num_threads())
        timer.timeit(2)  # the first steps compile
        took = timer.blocked_autorange(min_run_time=seconds).median
    return settings.batch * settings.context / took, micro_batch


def main(scale: str) -> None:
    """Measure all turns, and print them."""
    plan(scale)
    speeds, micro_batches = defaultdict[str, list[float]](list), dict[str, int]()
    begin, turns = time.monotonic(), 0
    while turns == 0 or (turns < TURNS and time.monotonic() - begin < LONGEST):
        for loop, (_, environment) in LOOPS.items():
            command = [sys.executable, __file__, scale, loop]
            variables = {**os.environ, **environment}
            done = subprocess.run(command, env=variables, check=True, stdout=subprocess.PIPE)
            speed, micro_batches[loop] = json.loads(done.stdout)
            speeds[loop].append(speed)
            print(f"{loop}: {speed:,.0f} tokens/s", flush=True)
        turns += 1
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "a CPU"
    print(f"scale {scale}, figure 4, on {device}: {turns} turns")
    for loop, values in speeds.items():
        spread = f"({min(values):,.0f} to {max(values):,.0f})"
        words = f"tokens/s {spread}, micro-batch {micro_batches[loop]}"
        print(f"{loop:10} {median(values):11,.0f} {words}")
    ratios = [one / other for one, other in zip(*speeds.values(), strict=True)]
    print(f"{'ratio':10} {median(ratios):11.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    try:
        if len(sys.argv) == 3:
            print(json.dumps(timed(*sys.argv[1:])))
        else:
            main(sys.argv[1])
    except Problem as problem:
        sys.exit(f"error: {problem}")
    except subprocess.CalledProcessError:
        sys.exit("error: a process of the bench ended (out of memory?)")
