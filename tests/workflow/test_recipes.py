"""A component of each kind is one module and one entry of configuration: added to a copy of the
project, it is found, built at scale smoke, and asked for by the SLURM profile."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import pandas as pd
import pytest
from project import Project
from support import edit_yaml, figure

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


def another(place: str, field: str, name: str) -> str:
    """A module with a component that does what one of the package does, under its own name."""
    module, _, known = place.rpartition(".")
    return f'''"""{known}, once more."""

from typing import Literal

from ptq_dynamics.{module} import {known}


class {name.title()}({known}):
    """{known}."""

    {field}: Literal["{name}"]
'''


LINE = '''"""The peak rate, as if it were a line."""

from typing import Literal

from ptq_dynamics.train.schedules import Scheduled
from ptq_dynamics.train.schedules.constant import Constant


class Line(Constant):
    """The peak rate."""

    kind: Literal["line"]


class LineRun(Scheduled):
    """Of a run."""

    kind: Literal["line"]

    def over(self, run, steps):
        """Of a run."""
        return Line(kind="line", peak=run.peak, warmup=run.warmup)
'''
ENDS = '''"""The mean of the first and the last measured checkpoint."""

from typing import Literal

from ptq_dynamics.train.averages import OfOne
from ptq_dynamics.train.settings import Mean, Member


class Ends(OfOne):
    """Both ends."""

    ends: Literal["both"]

    def means(self, timeline):
        """One."""
        first, *_, last = timeline.measured(self.trajectory)
        members = tuple(Member("trajectory", point.id, 1.0) for point in (first, last))
        return [Mean(last.id, last.step, members)]
'''
ALPACA = {"architecture": "alpaca", "layers": 1, "width": 32, "heads": 2, "key_value_heads": 1}
ALPACA |= {"feedforward": 64, "tied": True, "rotary_base": 10000, "context": 16}
NORMS = ["gradient_norm", "weight_norm"]
BRANCH = {"Branch": ["rainbow-002"]}
RECIPES = [
    Recipe(
        "optimizer",
        "train/optimizers/tiger.py",
        another("train.optimizers.lion.Lion", "kind", "tiger"),
        {
            "runs.yaml": {
                "runs.tiger": short(
                    optimizer={"kind": "tiger", "betas": [0.9, 0.99], "weight_decay": 0.01}
                )
            }
        },
        figure("over_tokens", {"Tiger": ["tiger"]}, NORMS),
        "train/tiger/seed-201",
    ),
    Recipe(
        "schedule",
        "train/schedules/line.py",
        LINE,
        {"runs.yaml": {"runs.line": short(schedule="line")}},
        figure("over_tokens", {"Line": ["line"]}, NORMS),
        "train/line/seed-201",
    ),
    Recipe(
        "architecture",
        "train/architectures/alpaca.py",
        another("train.architectures.llama.Llama", "architecture", "alpaca"),
        {
            "scales/smoke.yaml": {"models.alpaca": ALPACA},
            "runs.yaml": {"runs.of-alpaca": short(model="alpaca")},
        },
        figure("over_tokens", {"Alpaca": ["of-alpaca"]}, METRICS, quantizers=["rtn-4bit"]),
        "train/of-alpaca/seed-201",
    ),
    Recipe(
        "quantizer",
        "quantize/methods/nearest.py",
        another("quantize.methods.rtn.Rtn", "method", "nearest"),
        {"quantizers.yaml": {"nearest-4bit": {"method": "nearest", "bits": 4, "group_size": 16}}},
        figure("over_tokens", BRANCH, METRICS, quantizers=["nearest-4bit"]),
        "measure/rainbow-002/seed-201/nearest-4bit/all",
    ),
    Recipe(
        "layout",
        "figures/layouts/plain.py",
        another("figures.layouts.over_tokens.OverTokens", "layout", "plain"),
        {},
        figure("plain", BRANCH, METRICS, quantizers=["rtn-4bit"]),
        "new-layout",
    ),
    Recipe(
        "average",
        "train/averages/ends.py",
        ENDS,
        {"runs.yaml": {"averages.both-ends": {"trajectory": "rainbow-012", "ends": "both"}}},
        figure("over_tokens", {"Ends": ["both-ends"]}, METRICS, quantizers=["rtn-4bit"]),
        "average/both-ends/seed-201/all",
        plans=True,
    ),
    Recipe(
        "task",
        "measure/tasks/shouted.py",
        another("measure.tasks.made.MadeTask", "source", "shouted"),
        {
            "tasks.yaml": {"shouted-word": {"source": "shouted", "kind": "word"}},
            "scales/smoke.yaml": {"tasks.names": ["word", "ending", "shouted-word"]},
        },
        figure("stages", BRANCH, ["accuracy"], options={"tasks": "each"}),
        "tasks/shouted-word/main",
        plans=True,
    ),
    Recipe(
        "objective",
        "train/objectives/replies.py",
        another("train.objectives.dialogues.Answers", "kind", "replies"),
        {"families.yaml": {"runs.smollm3-sft.objective": {"kind": "replies"}}},
        figure("over_tokens", {"SFT": ["smollm3-sft"]}, ["loss"]),
        "train/smollm3-sft/seed-201",
    ),
]
NAMES = [f"new-{recipe.kind}" for recipe in RECIPES]


def put(content, place: str, value) -> None:
    *path, last = place.split(".")
    for key in path:
        content = content[key]
    content[last] = value


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
                edit_yaml(made.folder / "config" / file, partial(put, place=place, value=value))
    return made


@pytest.fixture(scope="module")
def figures(project):
    """All new figures, built."""
    done = project.snakemake("--cores", "2", targets=("figures",))
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
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
    with figures.edited(f"{PACKAGE}/{recipe.module}") as (path,):
        path.write_text(path.read_text() + "\n# More.\n")
        assert figures.stale() == set()


def test_a_cluster_is_asked_for_them(project):
    pytest.importorskip("snakemake_executor_plugin_slurm")
    done = project.process(project.on_cluster("-n", "--", "figures"))
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
