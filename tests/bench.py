"""`make bench`: tokens a second of the trainer beside a plain loop over the same model, in turns.

The plain loop is nanoGPT's: rows of a memory map, torch's cross-entropy, torch's AdamW, which is
fused on a GPU alone. Printed are medians over turns, and the range of them.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from ptq_dynamics import models
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.train import train
from support import plan
from torch.nn.functional import cross_entropy

TURNS, SECONDS = 7, 5.0  # the turns that count, and about how long each is
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


def seconds(function, *arguments) -> float:
    """How long a call takes."""
    clock = Clock(function)
    clock(*arguments)
    return clock.seconds


def plain(settings, data: Tokens) -> Callable[[range], None]:
    """The plain loop over some steps."""
    model = settings.model.create(settings.vocabulary, settings.seed).train().to(models.device())
    forward = torch.compile(model) if settings.compile else model
    device, mixed = models.device(), settings.precision == "bfloat16"
    fused = device.type == "cuda"
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, fused=fused)

    def loop(steps):
        for step in steps:
            for rows in data.at(step).to(device).split(settings.micro_batch or settings.batch):
                with torch.autocast(device.type, dtype=torch.bfloat16, enabled=mixed):
                    logits = forward(rows[:, :-1], use_cache=False).logits
                    loss = cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
                (loss * len(rows) / settings.batch).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return loop


def main(scale: str) -> None:
    """Measure the first run of figure 4 at a scale."""
    made = plan(scale)
    name = next(iter(made.site.config.figures["fig04"].curves.values()))[0]
    settings = made.trajectories.train(name).settings
    with tempfile.TemporaryDirectory() as folder:
        data = Tokens(Path(folder, "tokens.bin"), settings)
        trainer = train.Trainer(settings, Path(folder), Path(folder))
        optimizing = trainer._optimizer.step = Clock(trainer._optimizer.step)
        reading = Clock(next)
        size = sum(each.numel() for each in trainer.model.parameters())

        def ours(steps):
            batches = train.ahead(data, trainer, steps)
            for _ in steps:
                trainer.update(reading(batches))

        loops = [ours, plain(settings, data)]
        for loop in loops:
            loop(range(2))  # compiles, too
        steps = range(max(2, round(SECONDS * 2 / seconds(ours, range(2)))))
        optimizing.seconds = reading.seconds = 0.0
        table = np.array([[seconds(loop, steps) for loop in loops] for _ in range(TURNS)])
        saving, state = Clock(trainer.save), Path(folder, "state")
        saving(state)
        apart = max(train.EVERY, state.stat().st_size / train.RATE)
    speeds, whole = len(steps) * trainer.tokens_per_step / table, table[:, 0].sum()
    print(f"scale {scale}, {name}, on {trainer.device}: {TURNS} turns of {len(steps)} steps")
    for words, each in zip(("trainer", "plain loop"), speeds.T, strict=True):
        print(
            f"{words:10} {np.median(each):11,.0f} tokens/s ({min(each):,.0f} to {max(each):,.0f})"
        )
    ratios = speeds[:, 0] / speeds[:, 1]
    print(f"{'ratio':10} {np.median(ratios):11.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    parts = {"input": reading.seconds / whole, "optimizer": optimizing.seconds / whole}
    parts |= {"saving": saving.seconds / apart}
    print("share of time:", ", ".join(f"{part} {share:.1%}" for part, share in parts.items()))
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
