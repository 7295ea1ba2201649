"""The types of the files under config/, and how they are read.

Configuration holds what is built. Everything here is checked before any job starts; an error names
the file, the key, the value and what is allowed.
"""

import difflib
import json
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from ptq_dynamics.problem import Problem

SCALES = ("smoke", "laptop", "gpu", "paper")


class Strict(BaseModel):
    """A mapping with known keys only."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for key in data:
                if key not in cls.model_fields:
                    near = difflib.get_close_matches(str(key), cls.model_fields, 1)
                    hint = f"; did you mean {near[0]!r}?" if near else ""
                    allowed = ", ".join(cls.model_fields)
                    raise ValueError(f"unknown key {key!r}{hint} (allowed: {allowed})")
        return data


def _fraction(value: Any) -> Fraction:
    try:
        numerator, _, denominator = str(value).partition("/")
        return Fraction(numerator) / Fraction(denominator or "1")
    except (ValueError, ZeroDivisionError):
        raise ValueError("must be a number or a fraction such as 18/190") from None


# A share of the scale's budget of training steps, exact: 18/190 of 190,000 steps is 18,000.
Share = Annotated[
    Fraction,
    BeforeValidator(_fraction),
    Field(gt=0, le=1),
    WithJsonSchema({"type": ["string", "number"], "description": "share of the budget, 18/190"}),
]
Count = Annotated[int, Field(gt=0)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _words(value: Any) -> Any:
    # From the command line: --config figures="fig04 fig06".
    return value.split() if isinstance(value, str) and value != "all" else value


# config/config.yaml


class Choice(Strict):
    """What to build: the scale, the seed of initial weights and data order, the figures."""

    scale: Literal["smoke", "laptop", "gpu", "paper"]
    seed: Annotated[int, Field(ge=0)]
    figures: Annotated[Literal["all"] | list[str], BeforeValidator(_words)]


# config/scales/SCALE.yaml


class ModelShape(Strict):
    """A GPT-NeoX and the batch it is trained with; `context` in tokens, `batch` in sequences."""

    layers: Count
    width: Count
    heads: Count
    feedforward: Count
    rotary_fraction: Annotated[float, Field(gt=0, le=1)]
    context: Count
    batch: Count
    micro_batch: Count | None = None

    @model_validator(mode="after")
    def _divides(self) -> "ModelShape":
        if self.width % self.heads:
            raise ValueError(f"heads {self.heads} does not divide width {self.width}")
        if self.micro_batch and self.batch % self.micro_batch:
            raise ValueError(f"micro_batch {self.micro_batch} does not divide batch {self.batch}")
        return self


class EmbeddedCorpus(Strict):
    """Text of installed packages; sizes in tokens."""

    source: Literal["embedded"]
    packages: Annotated[list[str], Field(min_length=1)]
    source_code: bool
    shortest_document: Count
    characters_per_token: Rate
    vocabulary: Annotated[int, Field(ge=257, le=65536)]
    train: Count
    validation: Count
    calibration: Count
    probe: Count


class DatasetSource(Strict):
    """A data set as `datasets.load_dataset` reads it."""

    path: str
    name: str | None = None
    data_files: str | None = None
    split: str = "train"
    revision: str | None = None
    field: str = "text"
    skip: Annotated[int, Field(ge=0)] = 0


class DatasetsCorpus(Strict):
    """Splits from public data sets with a public tokenizer; sizes in tokens."""

    source: Literal["datasets"]
    tokenizer: str
    vocabulary: Annotated[int, Field(ge=257, le=65536)]
    train_from: DatasetSource
    validation_from: DatasetSource
    calibration_from: DatasetSource
    probe_from: DatasetSource
    train: Count
    validation: Count
    calibration: Count
    probe: Count


class Measuring(Strict):
    """Which checkpoints are measured: one every so often, besides the first and the last."""

    trunk_every: Share
    cooldown_every: Share


class Evaluation(Strict):
    """Validation blocks of the model's context, and how many go at once."""

    blocks: Count
    batch: Count


class CalibrationSet(Strict):
    """Calibration sequences of the model's context, and how many go at once."""

    sequences: Count
    batch: Count


class Curvature(Strict):
    """How the Hessian is probed: sequences of the probe split, and how many go at once; power
    iteration until the eigenvalue is known to `tolerance` (relative residual); Rademacher vectors
    of the trace; eigenvalues of the spectrum."""

    sequences: Count
    batch: Count
    tolerance: Rate
    max_iterations: Count
    trace_samples: Annotated[int, Field(ge=2)]
    spectrum: Count


class Grid(Strict):
    """A regular grid of side × side points that reaches `margin` of the extent beyond the three
    checkpoints; the loss is that of the first validation blocks."""

    side: Annotated[int, Field(ge=2)]
    margin: Annotated[float, Field(ge=0)]
    blocks: Count


class Scale(Strict):
    """The numbers of one scale; `budget` and `log_every` in optimizer steps."""

    description: str
    budget: Count
    models: dict[str, ModelShape]
    precision: Literal["float32", "bfloat16"]
    compile: bool
    corpus: Annotated[EmbeddedCorpus | DatasetsCorpus, Field(discriminator="source")]
    log_every: Count
    measure: Measuring
    evaluation: Evaluation
    calibration: CalibrationSet
    curvature: Curvature
    landscape: Grid
    shard: Count | None
    threads: Count
    warm: bool


# config/runs.yaml


OptimizerKind = Literal["adamw", "adamw-independent", "adamc"]


class Optimizer(Strict):
    """A kind of AdamW and its settings; `clip` is the largest gradient norm.

    In one step at rate lr, weight decay takes from a weight p: adamw, p·lr·weight_decay;
    adamw-independent, p·(lr/peak)·weight_decay; adamc, p·lr·(lr/peak)·weight_decay.
    """

    kind: OptimizerKind
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]]
    eps: Rate
    weight_decay: Annotated[float, Field(ge=0)]
    clip: Rate


class OptimizerChange(Strict):
    """What a run's optimizer has other than the default."""

    kind: OptimizerKind | None = None
    weight_decay: Annotated[float, Field(ge=0)] | None = None


class Whole(Strict):
    """A run from fresh weights; `floor` is the final share of the peak learning rate; `cooldown`
    and `shape` belong to the schedule wsd."""

    model: str = "main"
    schedule: Literal["constant", "wsd", "cosine"]
    peak_lr: Rate
    length: Share
    cooldown: Share | None = None
    shape: Literal["linear", "1-sqrt"] = "linear"
    warmup: Share | None = None
    floor: Annotated[float, Field(ge=0, le=1)] = 0.0
    checkpoint_every: Share | None = None
    state_every: Share | None = None
    state_at: list[Share] = []
    optimizer: OptimizerChange = OptimizerChange()

    @model_validator(mode="after")
    def _has_cooldown(self) -> "Whole":
        if (self.cooldown is not None) != (self.schedule == "wsd"):
            raise ValueError("cooldown goes with schedule wsd, and wsd with a cooldown")
        if self.cooldown is not None and self.cooldown > self.length:
            raise ValueError(f"cooldown {self.cooldown} is longer than the run, {self.length}")
        return self


class Branch(Strict):
    """A cooldown that goes on from another run's state; `floor` as a share of the peak."""

    trunk: str
    at: Share
    cooldown: Share
    shape: Literal["linear", "1-sqrt"] = "linear"
    floor: Annotated[float, Field(ge=0, le=1)] = 0.0
    checkpoint_every: Share | None = None


def _kind_of_run(data: Any) -> str:
    has_trunk = "trunk" in data if isinstance(data, dict) else isinstance(data, Branch)
    return "branch" if has_trunk else "whole"


Run = Annotated[
    Annotated[Whole, Tag("whole")] | Annotated[Branch, Tag("branch")], Discriminator(_kind_of_run)
]


class Lawa(Strict):
    """Uniform mean of the last `window` checkpoints, one `every` so often, of one run."""

    trajectory: str
    every: Share
    window: Annotated[int, Field(ge=2)]


class Interpolation(Strict):
    """The line from the last checkpoint of one trajectory to that of another, in `points` equal
    steps, both ends counted."""

    start: str
    end: str
    points: Annotated[int, Field(ge=2)]


def _kind_of_average(data: Any) -> str:
    line = "start" in data if isinstance(data, dict) else isinstance(data, Interpolation)
    return "line" if line else "lawa"


Average = Annotated[
    Annotated[Lawa, Tag("lawa")] | Annotated[Interpolation, Tag("line")],
    Discriminator(_kind_of_average),
]


class RunDefaults(Strict):
    """What runs share unless they say otherwise."""

    optimizer: Optimizer
    warmup: Share
    checkpoint_every: Share


class Runs(Strict):
    """Controlled runs and the averages of their checkpoints, by name."""

    defaults: RunDefaults
    runs: dict[str, Run]
    averages: dict[str, Average]


# config/quantizers.yaml


class AtMost(Strict):
    """The largest group size up to this that divides every width of the model."""

    at_most: Count


GroupSize = Count | AtMost


class Gptq(Strict):
    """GPTQ through llm-compressor."""

    method: Literal["gptq"]
    bits: Literal[2, 3, 4, 5, 6, 7, 8]
    group_size: GroupSize
    symmetric: bool
    activation_order: Literal["static"] | None
    damping: Rate
    block_size: Count


class ForeignGptq(Strict):
    """GPTQ through GPTQModel or AutoGPTQ, each in its own environment."""

    method: Literal["gptqmodel", "autogptq"]
    bits: Literal[2, 3, 4, 8]
    group_size: GroupSize
    symmetric: bool
    activation_order: bool
    static_groups: bool
    damping: Rate
    damping_increment: Annotated[float, Field(ge=0)]
    true_sequential: bool
    mse: Annotated[float, Field(ge=0)]


class Rtn(Strict):
    """Round to nearest on a symmetric grid."""

    method: Literal["rtn"]
    bits: Literal[2, 3, 4, 5, 6, 7, 8]
    group_size: GroupSize


Quantizer = Annotated[Gptq | ForeignGptq | Rtn, Field(discriminator="method")]


# config/figures.yaml


class Landscape(Strict):
    """A plane through a trajectory's last checkpoint, its quantized weights and the checkpoint
    `previous` before."""

    previous: Share


class Figure(Strict):
    """A figure: the trajectories of every curve, by the curve's label; the quantizers, and what
    else is measured of every trajectory."""

    title: str
    caption: str
    curves: dict[str, list[str]]
    quantizers: list[str] = []
    curvature: list[Literal["sharpness", "spectrum"]] = []
    landscape: Landscape | None = None
    components: Count | None = None


# config/backends.yaml


class Backends(Strict):
    """What `make backends` compares: groups of quantizers with equal settings, on the measured
    checkpoints of one trajectory."""

    trajectory: str
    groups: list[Annotated[list[str], Field(min_length=2)]]


class Config(Strict):
    """All of config/, for one scale."""

    choice: Choice
    scale: Scale
    runs: Runs
    quantizers: dict[str, Quantizer]
    figures: dict[str, Figure]
    backends: Backends


T = TypeVar("T")
FILES: dict[str, tuple[str, Any]] = {
    "runs": ("runs.yaml", Runs),
    "quantizers": ("quantizers.yaml", dict[str, Quantizer]),
    "figures": ("figures.yaml", dict[str, Figure]),
    "backends": ("backends.yaml", Backends),
}


def load(choice: dict[str, Any], folder: Path) -> Config:
    """Read and check all files under `folder` for the scale and figures of `choice`.

    Raises `Problem` naming file, key, value and what is allowed.
    """
    chosen = _check(choice, Choice, folder / "config.yaml")
    scale_file = folder / "scales" / f"{chosen.scale}.yaml"
    parts = {name: _read(folder / file, type_) for name, (file, type_) in FILES.items()}
    return Config(choice=chosen, scale=_read(scale_file, Scale), **parts)


def read_yaml(path: Path) -> Any:
    """Content of a YAML file; `Problem` when it is missing or no YAML."""
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Problem(f"{path} is missing; restore it with git checkout {path}") from None
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise Problem(f"{path} is no YAML: {reason}") from None


def _read(path: Path, type_: Any) -> Any:
    return _check(read_yaml(path), type_, path)


def _check(data: Any, type_: type[T], path: Path) -> T:
    try:
        return TypeAdapter(type_).validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        tags = (
            "whole",
            "branch",
            "lawa",
            "line",
            "embedded",
            "datasets",
            "gptq",
            "gptqmodel",
            "autogptq",
            "rtn",
        )
        key = ".".join(str(part) for part in first["loc"] if part not in tags)
        message = first["msg"].removeprefix("Value error, ")
        value = first["input"]
        shown = "" if isinstance(value, dict) else f" is {value!r}"
        if first["type"] == "missing":
            shown, message = "", "is required and missing"
        place = f"{path}: {key}{shown}" if key else str(path)
        more = len(error.errors()) - 1
        also = f" (and {more} more such errors)" if more else ""
        raise Problem(f"{place}: {message}{also}") from None


def schema() -> str:
    """JSON schema of everything under config/, as it stands in config/schema.json."""
    return json.dumps(Config.model_json_schema(), indent=1, sort_keys=True) + "\n"
