"""The recipes of docs/changing.md, each followed: places that they name are those that change."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
import yaml
from project import Project
from support import ROOT, SCALE, differing

PACKAGE = "workflow/ptq_dynamics"
SECTION = (ROOT / "docs/changing.md").read_text()


@dataclass(frozen=True)
class Recipe:
    """What somebody adds who follows a recipe: `name` stands where the recipe has NAME; a text a
    place, which goes to the end of the file, or in front of a text that the file has."""

    title: str
    name: str
    added: Mapping[str, str | tuple[str, str]]
    jobs: frozenset[str]


def figure(name: str, layout: str, curves: str, rest: str) -> str:
    lines = [f"{name}:", "  title: New", "  caption: New.", f"  layout: {layout}"]
    return "\n".join([*lines, f"  curves: {{{curves}}}", f"  {rest}", ""])


def written(recipe: str) -> str:
    """The example that a recipe has."""
    (found,) = re.findall(r"\n\n      (\S.*)\n", text_of(recipe))
    return found


def text_of(title: str) -> str:
    (found,) = re.findall(
        rf"^- \*\*{re.escape(title)}\*\*(.*?)(?=^- \*\*|^\S|\Z)", SECTION, flags=re.M | re.S
    )
    return found


def places(recipe: Recipe) -> set[str]:
    """Paths that a recipe names."""
    named = re.findall(r"`((?:config|workflow|envs)/[^`\s]+)`", text_of(recipe.title))
    return {path.replace("NAME", recipe.name) for path in named}


METRICS = "metrics: [quantization_error, loss]"
BRANCH = "Branch: [rainbow-002]"
RECIPES = [
    Recipe(
        "A run.",
        "rainbow-050",
        {
            "config/runs.yaml": ("  # Peak learning rate (figure 6)", f"  {written('A run.')}\n"),
            "config/figures.yaml": figure(
                "new-run",
                "over_tokens",
                "Trunk: [constant-3e-3], Branch: [rainbow-050]",
                "metrics: [loss]",
            ),
        },
        frozenset({"train:rainbow-050,101", "figure:new-run"}),
    ),
    Recipe(
        "A quantizer.",
        "rtn-2bit",
        {
            "config/quantizers.yaml": f"{written('A quantizer.')}\n",
            "config/figures.yaml": figure(
                "new-quantizer", "over_tokens", BRANCH, f"quantizers: [rtn-2bit]\n  {METRICS}"
            ),
        },
        frozenset({"quantize:rainbow-002,101,rtn-2bit,all", "figure:new-quantizer"}),
    ),
    Recipe(
        "A method of quantization.",
        "truncation",
        {
            f"{PACKAGE}/quantize/truncation.py": '''"""Truncation: as rounding, but towards zero."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ptq_dynamics import models
from ptq_dynamics.engine.context import Context
from ptq_dynamics.models.packed import Grid
from ptq_dynamics.quantize.method import Calibration, Quantized, run_method
from ptq_dynamics.quantize.settings import QuantizeSettings, Truncation


def run(context: Context[QuantizeSettings[Truncation]]) -> Mapping[str, Any]:
    """Stage: quantize a trajectory's checkpoints by truncation."""
    return run_method(context, quantize)


def quantize(folder: Path, _calibration: Calibration, settings: Truncation) -> Quantized:
    """One checkpoint."""
    grids = {}
    for name, layer in models.linear_layers(models.load(folder)).items():
        weight = layer.weight.detach()
        scales = weight.abs().amax(dim=1, keepdim=True) / (2 ** (settings.bits - 1) - 1)
        codes = (weight / scales).trunc().to(torch.int8)
        grids[name] = Grid(settings.bits, codes, scales)
    return Quantized.on(grids)
''',
            f"{PACKAGE}/quantize/settings.py": (
                "@dataclass(frozen=True)\nclass Int8:",
                '''@dataclass(frozen=True)
class Truncation:
    """The grid: one scale a row."""

    bits: int


@dataclass(frozen=True)
class Int8:''',
            ),
            f"{PACKAGE}/config/quantizers.py": (
                "Quantizer = Annotated[\n    ",
                '''class Truncation(Kind):
    """Rounding towards zero, one scale a row."""

    stage: ClassVar[str] = "quantize.truncation"

    method: Literal["truncation"]
    bits: Literal[3, 4]

    def settings(self) -> settings.Truncation:
        """Its grid."""
        return settings.Truncation(self.bits)


Quantizer = Annotated[
    Truncation
    | ''',
            ),
            "config/quantizers.yaml": "truncation-4bit: {method: truncation, bits: 4}\n",
            "config/figures.yaml": figure(
                "new-method", "over_tokens", BRANCH, f"quantizers: [truncation-4bit]\n  {METRICS}"
            ),
        },
        frozenset({"quantize:rainbow-002,101,truncation-4bit,all", "figure:new-method"}),
    ),
    Recipe(
        "An optimizer.",
        "sgd",
        {
            f"{PACKAGE}/train/optimizers/sgd.py": '''"""SGD with momentum."""

import torch
from torch import nn

from ptq_dynamics.train.optimizers.groups import parameter_groups, set_groups
from ptq_dynamics.train.optimizers.settings import Sgd as Settings

__all__ = ["Settings", "make", "set_rate"]


def make(model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """The optimizer of a model, at rate 0."""
    return torch.optim.SGD(parameter_groups(model), lr=0.0, momentum=settings.momentum)


def set_rate(optimizer: torch.optim.Optimizer, settings: Settings, lr: float, peak: float) -> None:
    """Set the next update's learning rate, and the weight decay that goes with it."""
    set_groups(optimizer, lr, settings.weight_decay)
''',
            f"{PACKAGE}/train/optimizers/settings.py": (
                "@dataclass(frozen=True)\nclass AdEMAMix",
                '''@dataclass(frozen=True)
class Sgd:
    """Momentum, and the weight decay."""

    momentum: float
    weight_decay: float


@dataclass(frozen=True)
class AdEMAMix''',
            ),
            f"{PACKAGE}/train/optimizers/kinds.py": (
                "Optimizer = Annotated[",
                '''@dataclass(frozen=True)
class Sgd(Decaying):
    """SGD with momentum; one step takes p·lr·weight_decay from a weight p."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    module: ClassVar[str] = "sgd"

    kind: Literal["sgd"]
    momentum: Annotated[float, Field(ge=0, lt=1)]
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)]

    def settings(self, steps: Callable[[Share], int]) -> settings.Sgd:
        """All of it."""
        return settings.Sgd(self.momentum, self.weight_decay)


Optimizer = Annotated[Sgd | ''',
            ),
            "config/runs.yaml": (
                "\n  # AdamC (figure 20)",
                "  sgd: {schedule: constant, peak_lr: 0.1, length: 20/190, "
                "optimizer: {kind: sgd, momentum: 0.9, weight_decay: 0.01}}\n",
            ),
            "config/figures.yaml": figure(
                "new-optimizer", "dynamics", "SGD: [sgd]", "metrics: [gradient_norm, weight_norm]"
            ),
        },
        frozenset({"train:sgd,101", "figure:new-optimizer"}),
    ),
    Recipe(
        "A model.",
        "amber",
        {
            "config/scales/smoke.yaml": ("precision:", f"  {written('A model.')}\n"),
            "config/runs.yaml": (
                "\n  # AdamC (figure 20)",
                "  of-amber: {model: amber, schedule: constant, peak_lr: 0.01, length: 20/190}\n",
            ),
            "config/figures.yaml": figure(
                "new-model",
                "over_tokens",
                "Amber: [of-amber]",
                f"quantizers: [rtn-4bit]\n  {METRICS}",
            ),
        },
        frozenset({"train:of-amber,101", "figure:new-model"}),
    ),
    Recipe(
        "A public model.",
        "tiny",
        {
            "config/families.yaml": (
                "\nruns:\n",
                "  tiny:\n    label: Tiny\n    vocabulary: 1000\n    tokens_per_step: 1000000\n"
                "    peak_lr: 1.0e-3\n    warmup: 10\n    model: {architecture: llama, layers: 2,"
                " width: 64, heads: 4, key_value_heads: 4, feedforward: 128, tied: true,"
                " rotary_base: 10000}\n    miniature: {layers: 1, width: 32}\n\nruns:\n"
                "  tiny: {family: tiny, schedule: constant, tokens: 1.0e+11}\n"
                "  tiny-decay: {trunk: tiny, tokens: 1.0e+10}\n",
            ),
            "config/figures.yaml": figure(
                "new-family",
                "over_tokens",
                "Stable: [tiny], Decay: [tiny-decay]",
                "metrics: [loss]",
            ),
        },
        frozenset({"train:tiny,101", "train:tiny-decay,101", "figure:new-family"}),
    ),
    Recipe(
        "An architecture.",
        "qwen3",
        {
            f"{PACKAGE}/train/architectures/qwen3.py": '''"""Qwen3."""

from transformers import Qwen3Config

from ptq_dynamics.train.architectures.llama_like import Settings, options

__all__ = ["Settings", "config"]


def config(settings: Settings, vocabulary: int, context: int) -> Qwen3Config:
    """Its configuration."""
    width = settings.width // settings.heads
    return Qwen3Config(**options(settings, vocabulary, context), head_dim=width)
''',
            f"{PACKAGE}/config/models.py": (
                "AnyModel = Annotated[\n    ",
                '''class Qwen3(LlamaLike):
    """Qwen3, with norms on the queries and keys of a head."""

    module: ClassVar[str] = "qwen3"
    architecture: Literal["qwen3"]


AnyModel = Annotated[
    Qwen3
    | ''',
            ),
            "config/scales/smoke.yaml": (
                "precision:",
                "  qwen: {architecture: qwen3, layers: 1, width: 32, heads: 2, key_value_heads: 1, "
                "feedforward: 96, tied: true, rotary_base: 10000, context: 16}\n",
            ),
            "config/runs.yaml": (
                "\n  # AdamC (figure 20)",
                "  of-qwen: {model: qwen, schedule: constant, peak_lr: 0.01, length: 20/190}\n",
            ),
            "config/figures.yaml": figure(
                "new-architecture", "dynamics", "Qwen: [of-qwen]", "metrics: [weight_norm]"
            ),
        },
        frozenset({"train:of-qwen,101", "figure:new-architecture"}),
    ),
    Recipe(
        "A figure.",
        "new-figure",
        {
            "config/figures.yaml": figure(
                "new-figure",
                "parametric",
                BRANCH,
                f"quantizers: [rtn-3bit, rtn-4bit]\n  {METRICS}",
            ),
        },
        frozenset({"figure:new-figure"}),
    ),
    Recipe(
        "A layout.",
        "against_steps",
        {
            f"{PACKAGE}/figures/layouts/against_steps.py": '''"""Metrics, bare."""

from typing import Any, Literal

from ptq_dynamics.figures.layout import Evaluations, Measured


class AgainstSteps(Measured):
    """Every metric against tokens, bare."""

    layout: Literal["against_steps"]
    metrics: Evaluations

    def draw(self, sheet: Any) -> Any:
        """Draw the figure."""
        for metric, quantizer in sheet.data.wanted():
            panel = sheet.data.panel(metric, quantizer, "Tokens")
            sheet.add(panel, sheet.data.points(metric, quantizer))
        return sheet.publish()
''',
            "config/figures.yaml": figure("new-layout", "against_steps", BRANCH, "metrics: [loss]"),
        },
        frozenset({"figure:new-layout"}),
    ),
    Recipe(
        "A stage after pre-training.",
        "smollm3-more",
        {
            "config/families.yaml": (
                "\naverages:\n",
                f"\n  {written('A stage after pre-training.')}",
            ),
            "config/figures.yaml": figure(
                "new-stage", "stages", "More: [smollm3-more]", "metrics: [loss]"
            ),
        },
        frozenset({"train:smollm3-more,101", "figure:new-stage"}),
    ),
    Recipe(
        "An objective.",
        "everything",
        {
            f"{PACKAGE}/train/objectives/everything.py": '''"""All of dialogues."""

from pathlib import Path

from torch import Tensor, nn

from ptq_dynamics import models
from ptq_dynamics.corpus.tokens import TrainingData
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.train.objectives.settings import Everything as Settings
from ptq_dynamics.train.settings import TrainSettings

__all__ = ["Objective", "Settings", "data"]


def data(corpus: Manifest, settings: TrainSettings) -> TrainingData:
    """Sequences of dialogues."""
    return TrainingData(corpus, settings.context, settings.batch, settings.seed)


class Objective:
    """Mean cross-entropy of all tokens, nats, times the factor."""

    def __init__(self, settings: Settings, _start: Path | None) -> None:
        self._factor = settings.factor

    def loss(self, forward: nn.Module, part: Tensor, whole: Tensor) -> Tensor:
        """What a part of a batch adds to it."""
        losses = models.token_losses(forward, part[:, :-1], part[:, 1:])
        return self._factor * losses.sum() / whole[:, 1:].numel()
''',
            f"{PACKAGE}/train/objectives/settings.py": (
                "@dataclass(frozen=True)\nclass Preferences",
                '''@dataclass(frozen=True)
class Everything:
    """A factor on the loss."""

    factor: float


@dataclass(frozen=True)
class Preferences''',
            ),
            f"{PACKAGE}/train/objectives/kinds.py": (
                "Objective = Annotated[",
                '''class Everything(Kind):
    """All of dialogues, times a factor."""

    module: ClassVar[str] = "everything"
    kind: Literal["everything"]
    factor: float

    def settings(self) -> settings.Everything:
        """Its factor."""
        return settings.Everything(self.factor)


Objective = Annotated[Everything | ''',
            ),
            "config/families.yaml": (
                "\naverages:\n",
                "\n  smollm3-everything: {after: smollm3-mid, stage: everything, "
                "objective: {kind: everything, factor: 0.5}, corpus: questions, peak_lr: 1.0e-5, "
                "optimizer: {kind: adamw, betas: [0.9, 0.999], eps: 1.0e-8, weight_decay: 0}}",
            ),
            "config/figures.yaml": figure(
                "new-objective", "stages", "Everything: [smollm3-everything]", "metrics: [loss]"
            ),
        },
        frozenset({"train:smollm3-everything,101", "figure:new-objective"}),
    ),
    Recipe(
        "A task.",
        "more-words",
        {
            "config/tasks.yaml": f"{written('A task.')}\n",
            "config/scales/smoke.yaml": ("  - ending\n", "  - more-words\n"),
            "config/figures.yaml": figure("new-task", "stages", BRANCH, "metrics: [accuracy]"),
        },
        frozenset({"accuracy:rainbow-002,101,fp,more-words,all", "figure:new-task"}),
    ),
    Recipe(
        "A kind of question.",
        "short-words",
        {
            f"{PACKAGE}/measure/tasks/questions.py": (
                "KINDS: dict[KindName, Kind] = {\n",
                '''def short_word(each: Documented) -> Iterator[Question]:
    """A line up to one of its words of two or three letters, and this word."""
    yield from (one for one in word(each) if len(one.answer) <= 3)


KINDS: dict[KindName, Kind] = {
    "short-word": Kind(short_word, "acc", " "),
''',
            ),
            f"{PACKAGE}/measure/tasks/settings.py": (
                "KindName = Literal[\n",
                'KindName = Literal[\n    "short-word",\n',
            ),
            "config/tasks.yaml": "short-words: {source: made, kind: short-word}\n",
            "config/scales/smoke.yaml": ("  - ending\n", "  - short-words\n"),
            "config/figures.yaml": figure(
                "new-question", "stages", BRANCH, "metrics: [accuracy]\n  options: {tasks: each}"
            ),
        },
        frozenset({"accuracy:rainbow-002,101,fp,short-words,all", "figure:new-question"}),
    ),
]


def tiny(folder: Path) -> Project:
    """A copy of the project at a scale that builds in seconds."""
    project = Project.copy(folder)
    scale = yaml.safe_dump({**SCALE, "warm": True}, sort_keys=False)
    (folder / "config/scales/smoke.yaml").write_text(scale)
    return project


def follow(project: Project, recipe: Recipe) -> None:
    for place, added in recipe.added.items():
        path = project.folder / place
        if isinstance(added, str):
            with path.open("a") as file:
                file.write(added)
        else:
            before, text = added
            project.replace(path, before, text if before in text else text + before)
    command = [sys.executable, "-m", "ptq_dynamics.cli", "schema"]
    assert project.process(command).returncode == 0


def contents(project: Project) -> dict[str, bytes]:
    found = [
        path for place in ("config", "workflow") for path in (project.folder / place).rglob("*")
    ]
    return {
        str(path.relative_to(project.folder)): path.read_bytes()
        for path in found
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.parametrize("recipe", RECIPES, ids=[recipe.title for recipe in RECIPES])
def test_a_recipe_names_every_place_to_touch(tmp_path, recipe):
    project = tiny(tmp_path / "project")
    before = contents(project)
    follow(project, recipe)
    assert set(differing(before, contents(project))) == places(recipe)
    (name,) = (job.partition(":")[2] for job in recipe.jobs if job.startswith("figure:"))
    assert recipe.jobs <= project.stale(name)


def test_what_all_recipes_add_is_built(tmp_path):
    project = tiny(tmp_path / "project")
    for recipe in RECIPES:
        follow(project, recipe)
    wanted = {job for recipe in RECIPES for job in recipe.jobs}
    names = sorted(job.partition(":")[2] for job in wanted if job.startswith("figure:"))
    assert wanted <= project.planned(targets=tuple(names))
    done = project.snakemake("--quiet", targets=tuple(names))
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    for name in names:
        table = pd.read_csv(project.folder / f"figures/smoke/{name}.csv")
        assert len(table) > 1 and table.y.notna().all(), name
    assert project.stale(" ".join(names)) == set()
