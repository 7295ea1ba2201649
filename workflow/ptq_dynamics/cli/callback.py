"""A callback of transformers' Trainer that measures checkpoints while the model is trained."""

import os
import sys
from pathlib import Path
from subprocess import PIPE, Popen

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

# What torchrun sets for the processes of a training, of which the measurements are none.
DISTRIBUTED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class MeasureCallback(TrainerCallback):
    """Runs `ptq-dynamics measure OUTPUT_DIR --watch` with some options during a training. At its
    end the training waits until all checkpoints are measured."""

    def __init__(self, *options: str) -> None:
        self.options = options
        self.process: Popen[bytes] | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Start the command in one of the processes of the training."""
        if state.is_world_process_zero:
            folder = Path(args.output_dir or ".")
            folder.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", "ptq_dynamics.cli", "measure", str(folder)]
            command += ["--watch", "--piped", *self.options]
            own = {name: value for name, value in os.environ.items() if name not in DISTRIBUTED}
            self.process = Popen(command, stdin=PIPE, env=own)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Let the command measure the last checkpoints, and wait for it."""
        if self.process is not None:
            self.process.communicate(b"\n")
