"""`make bench`: tokens a second of the trainer beside a plain loop over the same model, in turns.

The plain loop is nanoGPT's: rows of a memory map, torch's cross-entropy, torch's AdamW, which is
fused on a GPU alone. Each has a process: the trainer's has the environment of a job. In turns, one
uses the device while the other waits without memory for activations. The plain loop halves the
micro-batch until it fits. Printed are medians over turns, and the range of them.
"""

import os
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from ptq_dynamics import models
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.warm import ALLOCATOR
from ptq_dynamics.train import train
from support import plan
from torch.nn.functional import cross_entropy

TURNS, FEWEST, SECONDS = 7, 3, 5.0  # pairs of turns that count, and about how long a turn is
WITHIN = 150.0  # seconds until the last turn ends, so that all ends within three minutes
# At the rates of runs, random tokens lead to denormal numbers, with which a CPU is slow.
RATE = 1e-3
# Dense bfloat16 FLOP a second, from data sheets.
PEAKS = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L40S": 362e12, "RTX 4090": 165e12}


class Tokens:
    """Random tokens in a file, in batches at random places."""

    def __init__(self, path: Path, settings) -> None:
        self.length, self.batch = settings.context + 1, settings.batch
        random = np.random.default_rng(0)
        random.integers(settings.vocabulary, size=1 << 24).astype(np.uint16).tofile(path)
        self.stream = np.memmap(path, dtype=np.uint16, mode="r")

    def at(self, step, rows=None):
        """Some rows (None: all) of a batch, int64 [rows, length]."""
        starts = np.random.default_rng(step).integers(
            len(self.stream) - self.length, size=self.batch
        )
        rows = range(self.batch) if rows is None else rows
        found = [self.stream[starts[row] : starts[row] + self.length] for row in rows]
        return torch.from_numpy(np.stack(found).astype(np.int64))


class Clock:
    """A function, and the seconds that its calls have taken."""

    def __init__(self, function) -> None:
        self.function, self.seconds = function, 0.0

    def __call__(self, *arguments):
        start = now()
        found = self.function(*arguments)
        self.seconds += now() - start
        return found


def now() -> float:
    """The time in seconds, after the device has done its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.monotonic()


def fitting(attempt, size: int) -> int:
    """The largest of `size` and its halves at which an attempt has enough memory."""
    while True:
        try:
            attempt(size)
            return size
        except RuntimeError as error:
            # torch has a class for GPUs alone.
            is_memory = isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)
            if not is_memory or size == 1:
                raise
        # Here the tensors of the attempt are gone.
        size //= 2
        torch.cuda.empty_cache()


def plain(settings, data: Tokens, folder: Path):
    """The plain loop over some steps, and a function that returns its micro-batch."""
    model = settings.model.create(settings.vocabulary, settings.seed).train().to(models.device())
    device, mixed = models.device(), settings.precision == "bfloat16"
    fused = device.type == "cuda"
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.1, fused=fused)

    def update(forward, batch, size):
        for rows in batch.to(device).split(size):
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=mixed):
                logits = forward(rows[:, :-1], use_cache=False).logits
                loss = cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
            (loss * len(rows) / settings.batch).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def fitted(forward, most):
        # The second update has the optimizer's moments in memory as well.
        def attempt(size):
            for step in range(2):
                update(forward, data.at(step, range(size)), size)

        return fitting(attempt, most)

    # Uncompiled at first, since compiling takes half a minute for each size.
    micro_batch = fitted(model, settings.micro_batch or settings.batch)
    forward = torch.compile(model, dynamic=False) if settings.compile else model
    micro_batch = fitted(forward, micro_batch)

    def loop(steps):
        for step in steps:
            update(forward, data.at(step), micro_batch)

    return loop, {}, lambda seconds: micro_batch


def ours(settings, data: Tokens, folder: Path):
    """The trainer's loop over some steps, and a function that returns shares of its time."""
    settings = settings.model_copy(
        update={"schedule": settings.schedule.model_copy(update={"peak": RATE})}
    )
    trainer = train.Trainer(settings, folder, folder)
    optimizing = trainer._optimizer.step = Clock(trainer._optimizer.step)
    reading, saving = Clock(next), Clock(trainer.save)
    clocks = {"input": reading, "optimizer": optimizing}

    def loop(steps):
        batches = train.ahead(data, trainer, steps)
        for _ in steps:
            trainer.update(reading(batches))

    def parts(whole):
        saving(state := folder / "state")
        shares = {name: clock.seconds / whole for name, clock in clocks.items()}
        shares["saving"] = saving.seconds / max(train.EVERY, state.stat().st_size / train.RATE)
        size = sum(each.numel() for each in trainer.model.parameters())
        micro_batch = settings.micro_batch or settings.batch
        return micro_batch, trainer.device.type, trainer.tokens_per_step, size, shares

    return loop, clocks, parts


def schedule(left: float, seconds: np.ndarray) -> tuple[int, int]:
    """The steps of a turn, and the number of pairs of turns, in the seconds that are left. One step
    of each loop takes some seconds."""
    turn = min(SECONDS, left / (2 * FEWEST))
    steps = max(2, round(turn / seconds.max()))
    return steps, int(np.clip(left / (steps * seconds.sum()), FEWEST, TURNS))


def serve(make, scale: str, folder: Path, pipe) -> None:
    """Time a loop in this process, over as many steps as are asked for."""
    made = plan(scale)
    torch.set_num_threads(made.site.config.scale.threads)
    name = next(iter(made.site.config.figures["fig04"].curves.values()))[0]
    settings = made.trajectories.train(name).settings
    data, clocks, took = Tokens(folder / "tokens.bin", settings), {}, 0.0
    for turn, steps in enumerate(iter(pipe.recv, 0)):
        if turn == 0:
            loop, clocks, parts = make(settings, data, folder)
        elif turn == 1:  # the first turn compiles, too
            for clock in clocks.values():
                clock.seconds = took = 0.0
        clock = Clock(loop)
        clock(range(steps))
        torch.cuda.empty_cache()  # for the other process
        took += clock.seconds
        pipe.send(clock.seconds)
    pipe.send(parts(took))


def main(scale: str) -> None:
    """Measure the first run of figure 4 at a scale."""
    start = time.monotonic()
    plan(scale)
    spawn, pipes = get_context("spawn"), {}
    with tempfile.TemporaryDirectory() as folder:
        for make, environment in ((ours, ALLOCATOR), (plain, {})):
            (own := Path(folder, make.__name__)).mkdir()
            pipes[make], end = spawn.Pipe()
            with patch.dict(os.environ, environment):
                spawn.Process(target=serve, args=(make, scale, own, end), daemon=True).start()
            end.close()

        def turn(make, steps):
            pipes[make].send(steps)
            return pipes[make].recv()

        for make in pipes:  # one after the other, since the first steps need most memory
            turn(make, 2)
        seconds = np.array([turn(make, 2) for make in pipes]) / 2
        steps, turns = schedule(WITHIN - (time.monotonic() - start), seconds)
        table = np.array([[turn(make, steps) for make in pipes] for _ in range(turns)])
        (micro_batch, device, tokens_per_step, size, shares), fitted = (
            turn(make, 0) for make in pipes
        )
    speeds = steps * tokens_per_step / table
    print(f"scale {scale}, figure 4, on {device}: {turns} turns of {steps} steps")
    loops = ("trainer", micro_batch), ("plain loop", fitted)
    for (words, rows), each in zip(loops, speeds.T, strict=True):
        spread = f"({min(each):,.0f} to {max(each):,.0f})"
        print(f"{words:10} {np.median(each):11,.0f} tokens/s {spread}, micro-batch {rows}")
    ratios = speeds[:, 0] / speeds[:, 1]
    print(f"{'ratio':10} {np.median(ratios):11.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    print("share of time:", ", ".join(f"{part} {share:.1%}" for part, share in shares.items()))
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "a CPU"
    if peak := next((peak for known, peak in PEAKS.items() if known in device), None):
        print(f"share of the peak: {6 * size * np.median(speeds[:, 0]) / peak:.1%} of {device}")
    else:
        print(f"share of the peak: not known of {device}")


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except Problem as problem:
        sys.exit(f"error: {problem}")
    except (EOFError, BrokenPipeError):
        sys.exit("error: a process of the bench ended (out of memory?)")
