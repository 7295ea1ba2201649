"""A component of each kind is one module and one entry of configuration: added to a copy of the
project, it is found, built at scale smoke, and asked for by the SLURM profile."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
import pytest
from project import Project
from support import edit_yaml, figure, put

PACKAGE = "workflow/ptq_dynamics"
METRICS = ["quantization_error", "loss"]


@dataclass(frozen=True)
class Recipe:
    """What is added: a module, entries of files of the configuration by their place, and a figure;
    and the job whose result depends on the module."""

    kind: str
    module: str
    text: str
    entries: Mapping[str, Mapping]
    figure: Mapping
    job: str
    plans: bool = False  # it decides settings, and the job runs none of its code


def short(**settings) -> dict:
    return {"schedule": "constant", "peak_lr": 0.01, "length": "20/190", **settings}


RECIPES = [
    Recipe(
        "optimizer",
        "train/optimizers/sgd.py",
        '''"""SGD with momentum."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from ptq_dynamics.train.optimizers import Optimizer

if TYPE_CHECKING:
    import torch
    from torch import nn


class Sgd(Optimizer):
    """SGD."""

    kind: Literal["sgd"]
    momentum: Annotated[float, Field(ge=0, lt=1)]

    def make(self, model: "nn.Module", budget: int) -> "torch.optim.Optimizer":
        """Torch's."""
        import torch

        return torch.optim.SGD(self.groups(model), lr=0.0, momentum=self.momentum)
''',
        {
            "runs.yaml": {
                "runs.sgd": short(optimizer={"kind": "sgd", "momentum": 0.9, "weight_decay": 0.01})
            }
        },
        figure("over_tokens", {"SGD": ["sgd"]}, ["gradient_norm", "weight_norm"]),
        "train/sgd/seed-201",
    ),
    Recipe(
        "schedule",
        "train/schedules/linear.py",
        '''"""A line from the peak rate to zero at the end of the run."""

from collections.abc import Callable
from typing import Literal

from ptq_dynamics.base.fields import Share
from ptq_dynamics.train.schedules import Schedule, Scheduled, Span


class Linear(Schedule):
    """A line to zero at step `stop`."""

    kind: Literal["linear"]
    stop: int

    def after_warmup(self, step: int) -> float:
        """On the line."""
        return self.peak * (self.stop - step) / (self.stop - self.warmup)

    def decay(self, last: int) -> range:
        """From the end of the warmup on."""
        return range(self.warmup, last)


class LinearRun(Scheduled):
    """A line."""

    kind: Literal["linear"]

    def in_steps(self, run: Span, steps: Callable[[Share], int]) -> Linear:
        """Of a run."""
        return Linear(kind="linear", peak=run.peak, warmup=run.warmup, stop=run.last)
''',
        {"runs.yaml": {"runs.line": short(schedule="linear")}},
        figure("over_tokens", {"Line": ["line"]}, ["gradient_norm", "weight_norm"]),
        "train/line/seed-201",
    ),
    Recipe(
        "architecture",
        "train/architectures/granite.py",
        '''"""Granite: Llama's, with multipliers that are one."""

from typing import ClassVar, Literal

from ptq_dynamics.train.architectures import LlamaLike


class Granite(LlamaLike):
    """Granite."""

    own: ClassVar[str] = "GraniteConfig"
    architecture: Literal["granite"]
''',
        {
            "scales/smoke.yaml": {
                "models.granite": {
                    "architecture": "granite",
                    "layers": 1,
                    "width": 32,
                    "heads": 2,
                    "key_value_heads": 1,
                    "feedforward": 64,
                    "tied": True,
                    "rotary_base": 10000,
                    "context": 16,
                }
            },
            "runs.yaml": {"runs.of-granite": short(model="granite")},
        },
        figure("over_tokens", {"Granite": ["of-granite"]}, METRICS, quantizers=["rtn-4bit"]),
        "train/of-granite/seed-201",
    ),
    Recipe(
        "quantizer",
        "quantize/methods/truncation.py",
        '''"""Truncation: as rounding, but towards zero, with one scale a row."""

from pathlib import Path
from typing import Literal

from ptq_dynamics.quantize.methods import Calibration, Quantized, Quantizer


class Truncation(Quantizer):
    """Truncation."""

    method: Literal["truncation"]
    bits: Literal[3, 4]

    def quantize(self, folder: Path, calibration: Calibration) -> Quantized:
        """One checkpoint."""
        import torch

        from ptq_dynamics import models
        from ptq_dynamics.models.packed import Grid
        from ptq_dynamics.quantize.storage import on_grids, original

        grids = {}
        for name, weight in original(folder, models.load(folder)).items():
            scales = weight.abs().amax(dim=1, keepdim=True) / (2 ** (self.bits - 1) - 1)
            grids[name] = Grid(self.bits, (weight / scales).trunc().to(torch.int8), scales)
        return on_grids(grids)
''',
        {"quantizers.yaml": {"truncation-4bit": {"method": "truncation", "bits": 4}}},
        figure("over_tokens", {"Branch": ["rainbow-002"]}, METRICS, quantizers=["truncation-4bit"]),
        "measure/rainbow-002/seed-201/truncation-4bit/all",
    ),
    Recipe(
        "probe",
        "curvature/probes/form.py",
        '''"""A random quadratic form of the Hessian."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from ptq_dynamics.base.fields import Count
from ptq_dynamics.curvature.probes import Probe, ProbeSettings
from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure.metrics import Column

if TYPE_CHECKING:
    from ptq_dynamics.curvature.hessian import LossHessian, Value


class FormSettings(ProbeSettings):
    """Directions."""

    directions: int


class Form(Probe):
    """The mean over `directions`."""

    columns: ClassVar[tuple[Column, ...]] = (Column("form", "Form", "Curvature (nats)"),)
    stage: ClassVar[str] = "curvature.probes.form"
    settings: ClassVar[type[ProbeSettings]] = FormSettings

    kind: Literal["form"]
    directions: Count


def run(context: Context[FormSettings]) -> Mapping[str, object]:
    """Write it."""
    from ptq_dynamics.curvature.hessian import run_probe

    return run_probe(context, forms)


def forms(hessian: "LossHessian", settings: FormSettings) -> "Iterator[Value]":
    """One value."""
    import torch

    from ptq_dynamics.curvature.hessian import gaussian

    generator = torch.Generator().manual_seed(settings.seed)
    draws = (gaussian(hessian.like, generator) for _ in range(settings.directions))
    values = [float(hessian.form(v).mean()) for v in draws]
    yield "form", sum(values) / len(values), None
''',
        {
            "scales/smoke.yaml": {
                "curvature.probes": [
                    {"kind": "sharpness", "trace_samples": 4},
                    {"kind": "spectrum", "eigenvalues": 5},
                    {"kind": "form", "directions": 2},
                ]
            }
        },
        figure("over_tokens", {"Branch": ["rainbow-002"]}, ["form"]),
        "curvature/rainbow-002/seed-201/form/all",
    ),
    Recipe(
        "metric",
        "measure/metrics/surprise.py",
        '''"""The largest loss of a block."""

from typing import ClassVar, Literal

from ptq_dynamics.measure.metrics import Column, Measured, ModelMetric


class Surprise(ModelMetric):
    """The largest."""

    columns: ClassVar[tuple[Column]] = (Column("surprise", "Surprise", "Loss (nats/token)"),)
    metric: Literal["surprise"] = "surprise"

    def measure(self, measured: Measured) -> tuple[float, float | None]:
        """Over blocks."""
        return float(measured.losses.max()), None
''',
        {},
        figure("over_tokens", {"Branch": ["rainbow-002"]}, ["surprise"]),
        "measure/rainbow-002/seed-201/fp/all",
    ),
    Recipe(
        "layout",
        "figures/layouts/plain.py",
        '''"""Every metric over tokens, and nothing besides."""

from typing import TYPE_CHECKING, Literal

from ptq_dynamics.figures.layout import Evaluations, Layout

if TYPE_CHECKING:
    from ptq_dynamics.figures.panels import Picture, Sheet


class Plain(Layout):
    """A panel for every metric."""

    layout: Literal["plain"]
    metrics: Evaluations

    def draw(self, sheet: "Sheet") -> "Picture":
        """Draw the figure."""
        for metric, quantizer in sheet.data.wanted():
            panel = sheet.data.run_panel(metric, quantizer)
            sheet.add(panel, sheet.data.points(metric, quantizer))
        return sheet.publish()
''',
        {},
        figure("plain", {"Branch": ["rainbow-002"]}, METRICS, quantizers=["rtn-4bit"]),
        "new-layout",
    ),
    Recipe(
        "average",
        "trajectories/averages/ends.py",
        '''"""The mean of the first and the last measured checkpoint."""

from typing import Literal

from ptq_dynamics.trajectories.averages import Mean, Member, OfOne, SourcePoints, Steps


class Ends(OfOne):
    """Both ends."""

    ends: Literal["both"]

    def along(self, source: SourcePoints, steps: Steps) -> list[Mean]:
        """One."""
        first, *_, last = source.measured
        members = tuple(Member("trajectory", point.id, 1.0) for point in (first, last))
        return [Mean(last.id, last.step, members)]
''',
        {"runs.yaml": {"averages.both-ends": {"trajectory": "rainbow-002", "ends": "both"}}},
        figure("over_tokens", {"Ends": ["both-ends"]}, METRICS, quantizers=["rtn-4bit"]),
        "average/both-ends/seed-201/all",
        plans=True,
    ),
    Recipe(
        "task",
        "measure/tasks/shouted.py",
        '''"""The questions of another task, made of documents in the same way."""

from typing import Literal

from ptq_dynamics.measure.tasks.made import MadeTask


class Shouted(MadeTask):
    """Made."""

    source: Literal["shouted"]  # type: ignore[assignment]
''',
        {
            "tasks.yaml": {"shouted-word": {"source": "shouted", "kind": "word"}},
            "scales/smoke.yaml": {"tasks.names": ["word", "ending", "shouted-word"]},
        },
        figure("stages", {"Branch": ["rainbow-002"]}, ["accuracy"], options={"tasks": "each"}),
        "tasks/shouted-word/main",
        plans=True,
    ),
    Recipe(
        "objective",
        "train/objectives/softer.py",
        '''"""Answers, for which a loss counts half."""

from typing import Any, Literal

from ptq_dynamics.train.objectives.dialogues import Answers


class Softer(Answers):
    """Half of it."""

    kind: Literal["softer"]  # type: ignore[assignment]

    def loss(self, model: Any, rows: Any, before: Any) -> Any:
        """Of answers."""
        return super().loss(model, rows, before) / 2
''',
        {"families.yaml": {"runs.smollm3-sft.objective": {"kind": "softer"}}},
        figure("over_tokens", {"SFT": ["smollm3-sft"]}, ["loss"]),
        "train/smollm3-sft/seed-201",
    ),
]
NAMES = [f"new-{recipe.kind}" for recipe in RECIPES]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The project with a component of each kind."""
    made = Project.copy(tmp_path_factory.mktemp("recipes") / "project", figures=" ".join(NAMES))
    for name, recipe in zip(NAMES, RECIPES, strict=True):
        path = made.folder / PACKAGE / recipe.module
        assert not path.exists()
        path.write_text(recipe.text)
        entries = {**recipe.entries, "figures.yaml": {name: recipe.figure}}
        for file, places in entries.items():
            for place, value in places.items():
                edit_yaml(
                    made.folder / "config" / file,
                    lambda found, place=place, value=value: put(found, place.split("."), value),
                )
    return made


@pytest.fixture(scope="module")
def figures(project):
    """All new figures, built."""
    project.build("--cores", "2", targets=("figures",))
    return project


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.kind)
def test_a_component_is_built_and_its_result_depends_on_its_module_alone(figures, recipe):
    name = f"new-{recipe.kind}"
    drawn = pd.read_csv(figures.folder / f"figures/smoke/{name}.csv")
    assert len(drawn) and drawn.y.notna().all()
    module = recipe.module.removesuffix(".py").replace("/", ".")
    place = f"figures/smoke/{name}." if recipe.kind == "layout" else f"results/smoke/{recipe.job}/"
    made = json.loads((figures.folder / f"{place}record.json").read_text())
    assert (module in made["job"]["code"]) is not recipe.plans
