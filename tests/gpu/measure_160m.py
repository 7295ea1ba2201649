# Measure a random checkpoint of scale paper's model under 4-bit GPTQ, with paper's calibration set.
# `peak` comes from `support.PEAK`. Prints MiB of main memory, MiB of the GPU, and seconds.
import sys
import time
from pathlib import Path

import numpy as np
import torch
from ptq_dynamics.corpus import splits
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.context import Context, Progress
from ptq_dynamics.measure import measure
from ptq_dynamics.measure.series import MeasureSettings
from ptq_dynamics.quantize.methods import CalibrationSettings
from ptq_dynamics.trajectories import trajectory
from support import plan

NAME = "step-0000001"
folder, size = Path(sys.argv[1]), sys.argv[2]
paper = plan("paper")
shape, sequences, blocks, vocabulary = (
    paper.site.planned["constant-3e-3"].shape.model,
    1024,
    64,
    50304,
)
if size == "small":
    changes = {"layers": 2, "width": 128, "heads": 4, "feedforward": 256, "context": 128}
    shape, vocabulary, sequences, blocks = shape.model_copy(update=changes), 512, 16, 4
for name in ("trajectory", "corpus", "out", "scratch"):
    (folder / name).mkdir()
point = trajectory.Checkpoint(NAME, 1, 4096, 1e-3, "constant")
shape.create(vocabulary, 0).save_pretrained(folder / "trajectory" / NAME)
facts = trajectory.facts([point], seed=100, parameters=shape.parameters(vocabulary))
source = manifest.describe(folder / "trajectory", folder / "trajectory/manifest.json", facts)
draw = np.random.default_rng(0)
for name, count in (("calibration", sequences), ("validation", blocks)):
    stream = draw.integers(vocabulary, size=count * shape.context).astype("<u2")
    stream.tofile(folder / "corpus" / f"{name}.bin")
about = {splits.DTYPE: "uint16"}
corpus = manifest.describe(folder / "corpus", folder / "corpus/manifest.json", about)
calibration = {"context": shape.context, "sequences": sequences, "documents": False}
quantizer = plan("laptop").site.config.quantizers["gptq-4bit"]  # paper's needs an own environment
settings = MeasureSettings(
    checkpoints=(NAME,),
    context=shape.context,
    blocks=blocks,
    batch=4,
    quantizer=quantizer.resolved({shape.width, shape.feedforward}),
    calibration=CalibrationSettings(**calibration, batch=16, draw=1),
    tasks=(),
    carried=0,
    keep=False,
)
inputs = {"trajectory": [source], "corpus": [corpus]}
start = time.monotonic()
measure.run(Context("160m", settings, inputs, folder / "out", folder / "scratch", Progress("160m")))
on_gpu = torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available() else 0.0
print(peak(), on_gpu, time.monotonic() - start)  # noqa: F821
