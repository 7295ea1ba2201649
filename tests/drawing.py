"""Figures drawn from inputs that are made up, in the real formats, and what was drawn."""

import json
import shutil
from functools import partial
from itertools import chain, combinations
from pathlib import Path
from zlib import crc32

import numpy as np
import pandas as pd
import pytest
import yaml
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PathCollection, PolyCollection
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure as Picture
from matplotlib.lines import AxLine, Line2D
from matplotlib.text import Text
from ptq_dynamics.base import needs
from ptq_dynamics.base.content import canonical, write_atomically
from ptq_dynamics.curvature.settings import GRID, POINTS, SCORES
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.context import Context, Progress
from ptq_dynamics.engine.job import Job
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.figures import draw
from ptq_dynamics.figures.curves import Curves
from ptq_dynamics.figures.figure import FigureSettings
from ptq_dynamics.figures.panels import Sheet
from ptq_dynamics.figures.places import STRIP
from ptq_dynamics.figures.style import SMALLEST
from ptq_dynamics.measure import names
from ptq_dynamics.measure.measurements import join, read_table
from ptq_dynamics.measure.names import FULL_PRECISION
from ptq_dynamics.measure.series import Series
from ptq_dynamics.plan import Plan
from ptq_dynamics.plan.planned_runs import PlannedBranch
from ptq_dynamics.trajectories import trajectory
from ptq_dynamics.trajectories.trajectory import CURVE, Checkpoint
from safetensors.numpy import save_file
from support import ROOT, edit_yaml, plan

BLOCKS = 24
# What probes give at every checkpoint.
PROBED = {
    "sharpness": ["sharpness", "hessian_trace"],
    "spectrum": [f"eigenvalue_{n:02d}" for n in (1, 2, 3)],
}
# What every layout draws, besides its curves and quantizers.
LAYOUTS = {
    "over_tokens": {"metrics": ["quantization_error"]},
    "parametric": {"metrics": ["quantization_error", "loss"]},
    "stages": {"metrics": ["quantization_error", "accuracy_degradation"]},
    "flatness": {"metrics": ["quantization_error", "sharpness"]},
    "compared": {"metrics": ["quantization_error"]},
    "landscapes": {"landscape": {"previous": "2/190"}},
    "pca": {"components": 2},
}


def figure(layout, curves, quantizers, **others):
    """A figure as it stands in config/figures.yaml."""
    found = {"title": "A title", "caption": "A caption", "layout": layout, "curves": curves}
    found |= {"quantizers": [] if layout == "pca" else quantizers}
    return {**found, **LAYOUTS[layout], **others}


def planned(folder, figures, scale="laptop", **changes):
    """The plan of these figures alone, with changes to other files under config/."""
    config = folder / "config"
    shutil.copytree(ROOT / "config", config, dirs_exist_ok=True)
    for file, change in changes.items():
        edit_yaml(config / f"{file}.yaml", change)
    (config / "figures.yaml").write_text(yaml.safe_dump(figures, sort_keys=False))
    return plan(scale, config)


def random(*names: object) -> np.random.Generator:
    """Numbers that are the same for the same names."""
    return np.random.default_rng(crc32(" ".join(map(str, names)).encode()))


class Inputs:
    """What a figure's job reads, as plausible as at scale laptop."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder, self.plan, self.planned = folder, plan, plan.site.planned

    def write(self, job: Job) -> None:
        """All inputs of a figure, of claims or of tables that are not there yet."""
        drawn = getattr(job.settings, "figures", {"": job.settings}).values()
        for series in dict.fromkeys(series for each in drawn for series in each.series):
            shards = self.planned[series.trajectory].shards.values()
            for kind in (needs.MEASURE, *PROBED):
                make = partial(self.probed, PROBED[kind]) if kind in PROBED else self.measured
                paths = job.inputs.get(series.label(kind), [])
                for path, points in zip(paths, shards, strict=bool(paths)):
                    self.publish(path, make, series, [point.id for point in points])
        for run in dict.fromkeys(run for each in drawn for run in getattr(each, "runs", ())):
            if run.label in job.inputs:
                self.publish(*job.inputs[run.label], self.run, run.name, run.seed)
        for label, paths in job.inputs.items():
            if label.startswith("landscape "):
                self.publish(*paths, self.landscape, label)
            if needs.kind_of(label) == "beside":
                self.publish(*paths, lambda folder: {})
            if label == "components":
                self.publish(*paths, self.components, job)

    def publish(self, path, make, *arguments):
        """Files and manifest of one result, unless it is there."""
        path = self.folder / path
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            facts = make(path.parent, *arguments)
            write_atomically(path, manifest.describe(path.parent, path, facts).text())

    def checkpoints(self, name: str) -> dict[str, Checkpoint]:
        """Checkpoints of a trajectory by id."""
        made = self.planned[name]
        run = made.followed.name
        settings = self.plan.trajectories.train(run).settings
        found = {}
        for point in made.checkpoints:
            if point.step is None:
                tokens = max(self.last_tokens(source.name) for source in made.sources.values())
                found[point.id] = Checkpoint(point.id, None, tokens, None, "average")
                continue
            rate = settings.schedule.learning_rate(point.step) if run == name else None
            tokens = point.step * settings.batch * settings.context
            kind = settings.schedule.phase(point.step) if run == name else "average"
            found[point.id] = Checkpoint(point.id, point.step, tokens, rate, kind)
        return found

    def last_tokens(self, name):
        """Tokens of a trajectory's last measured checkpoint."""
        return self.checkpoints(name)[self.planned[name].measured[-1].id].tokens

    def facts(self, series: Series, ids: list[str]) -> dict:
        """Facts of what is measured of some checkpoints of a series. Where a branch begins, it has
        the weights of its trunk."""
        points, digests = [self.checkpoints(series.trajectory)[name] for name in ids], {}
        for point in points:
            owner = series.trajectory
            if point.step is not None and point.step == self.at(owner):
                owner = self.planned.run(owner).trunk.name
            text = f"{owner} {point.step} {series.seed} {series.quantizer}"
            digests[point.id] = f"{crc32(text.encode()):016x}"
        return trajectory.facts(points, digests=digests, seed=series.seed)

    def at(self, name: str) -> int | None:
        """The step at which a branch begins."""
        trajectory = self.planned[name]
        return trajectory.first if isinstance(trajectory, PlannedBranch) else None

    def measured(self, folder: Path, series: Series, ids: list[str]) -> dict:
        """Losses, errors of layers where it is quantized, and answers where tasks are asked."""
        self.losses(folder, series, ids)
        if series.quantizer != FULL_PRECISION:
            self.layers(folder, series, ids)
        of = (series.trajectory, series.quantizer)
        job = self.plan.measurements.measure(*of, folder.name, series.seed)
        tasks = [each.task for each in job.settings.tasks]
        if tasks:
            found = {task: self.outcomes(task, series, ids) for task in tasks}
            flat = {f"{t}/{name}": each for t, of in found.items() for name, each in of.items()}
            save_file(flat, folder / names.OUTCOMES)
        facts = {task: {"documents": BLOCKS, "chance": 0.25} for task in tasks}
        return {**self.facts(series, ids), "tasks": facts}

    def losses(self, folder: Path, series: Series, ids: list[str]) -> None:
        """Losses that fall along the run, and rise a little under a quantizer."""
        blocks = random("blocks").normal(0, 0.3, BLOCKS)
        own = random(series.trajectory, series.seed)
        offset, losses = own.uniform(0, 0.2), {}
        for name in ids:
            step = self.checkpoints(series.trajectory)[name].step or 150
            values = 2.6 + offset + 6 / (step + 20) ** 0.5 + blocks + own.normal(0, 0.02, BLOCKS)
            if series.quantizer != FULL_PRECISION:
                noise = random(series, name)
                values = values * (1.01 + noise.uniform(0, 0.02) + noise.normal(0, 0.005, BLOCKS))
            losses[name] = values.astype(np.float32)
        save_file(losses, folder / names.LOSSES)

    def layers(self, folder: Path, series: Series, ids: list[str]) -> None:
        """Errors of two layers."""
        rows = [
            {"checkpoint_id": name, "layer": layer, "weight_mse": a, "output_mse": b}
            for name in ids
            for layer in ("first", "second")
            for a, b in [random(series, name, layer).uniform(0.001, 0.002, 2)]
        ]
        pd.DataFrame(rows).to_csv(folder / names.LAYERS, index=False)

    def outcomes(self, task: str, series: Series, ids: list[str]) -> dict[str, np.ndarray]:
        """Questions of a task, half of them answered, fewer under a quantizer."""
        hard, found = random(task).uniform(0, 1, BLOCKS), {}
        for name in ids:
            skill = random(task, series.trajectory, series.seed, name).uniform(0.4, 0.6)
            quantized = series.quantizer != FULL_PRECISION
            skill -= quantized * random(task, series, name).uniform(0, 0.1)
            found[name] = (hard < skill).astype(np.float32)
        return found

    def probed(self, metrics, folder: Path, series: Series, ids: list[str]) -> dict:
        rows = [
            (name, metric, *random(series, name, metric).uniform(1, 9, 2))
            for name in ids
            for metric in metrics
        ]
        columns = ["checkpoint_id", "metric", "value", "stderr"]
        pd.DataFrame(rows, columns=columns).to_csv(folder / names.VALUES, index=False)
        return self.facts(series, ids)

    def run(self, folder: Path, name: str, seed: int) -> dict:
        """Training curve and checkpoints of a run."""
        settings = self.plan.trajectories.train(name).settings
        steps = np.arange(settings.first + 10, settings.last + 1, 10)
        curve = {"step": steps, "tokens": steps * settings.batch * settings.context}
        curve |= {"loss": 3 + 1 / np.sqrt(steps)}
        curve |= {"lr": [settings.schedule.learning_rate(int(step)) for step in steps]}
        size = 1 + seed % 7 / 10
        curve |= {"gradient_norm": size / np.sqrt(steps), "weight_norm": size * np.sqrt(steps)}
        pd.DataFrame(curve).to_csv(folder / CURVE, index=False)
        told = {"parameters": 168_000, "schedule": settings.schedule.model_dump(), "seed": seed}
        return trajectory.facts(self.checkpoints(name).values(), **told)

    def landscape(self, folder: Path, label: str) -> dict:
        """A bowl, and three points in it."""
        numbers = random(label)
        side = np.linspace(-1, 1, 5)
        x, y = np.meshgrid(side, side)
        loss = 3 + x**2 + numbers.uniform(0.5, 2) * y**2
        grid = {"x": x.ravel(), "y": y.ravel(), "loss": loss.ravel()}
        pd.DataFrame(grid).to_csv(folder / GRID, index=False)
        points = pd.DataFrame({"point": ["final", "previous", "quantized"]})
        points[["x", "y", "loss"]] = numbers.uniform(-1, 1, (3, 3))
        points["stderr"] = [0, *numbers.uniform(0.001, 0.002, 2)]
        points.to_csv(folder / POINTS, index=False)
        return {"distance_previous": 1.5, "distance_quantized": 0.25}

    def components(self, folder: Path, job: Job) -> dict:
        """Scores of all checkpoints."""
        rows = []
        members = chain.from_iterable(each for _, each in job.settings.curves)
        for name in dict.fromkeys(members):
            for seed in self.planned[name].seeds:
                for point in self.planned[name].measured:
                    whose = {"trajectory": name, "seed": seed, "step": point.step}
                    pc1, pc2 = random(name, seed, point.id).normal(size=2)
                    rows.append({**whose, "pc1": pc1, "pc2": pc2})
        pd.DataFrame(rows).to_csv(folder / SCORES, index=False)
        return {"explained": [0.6, 0.3]}


class Drawn:
    """Figures of a plan, each drawn once by its layout, without files of pictures to save time."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder, self.plan = folder, plan
        self.inputs = Inputs(folder, plan)
        self._pictures: dict[str, Picture] = {}
        self.facts: dict[str, dict] = {}

    def job(self, name: str) -> Job:
        return self.plan.figures.figure(name)

    def context(self, name: str) -> Context:
        """What the figure's stage is given, with settings as they cross the job border."""
        job = self.job(name)
        self.inputs.write(job)
        content = json.loads(canonical(job.settings.model_dump(mode="json")))
        settings, out = FigureSettings.model_validate(content), self.folder / job.folder
        out.mkdir(parents=True, exist_ok=True)
        return Context(name, settings, self.manifests(name), out, out, Progress(name))

    def picture(self, name: str) -> Picture:
        """A figure as matplotlib holds it."""
        if name not in self._pictures:
            context = self.context(name)
            made = context.settings.figure.draw(Sheet(Curves(context.settings, context.inputs)))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(draw, "PICTURES", ())
                draw.save(made, context)
            self._pictures[name], self.facts[name] = made.figure, made.facts
        return self._pictures[name]

    def said(self, name: str) -> str:
        """What stands below the figure's caption, with plain spaces."""
        self.picture(name)
        return " ".join(self.facts[name]["finding"].split())

    def table(self, name: str) -> pd.DataFrame:
        """The figure's table as it was written."""
        self.picture(name)
        path = self.folder / self.job(name).folder / f"{name}.csv"
        texts = dict.fromkeys(("curve", "segment", "panel", "x_axis", "y_axis"), "string")
        return read_table(path, texts)

    def manifests(self, name: str) -> dict[str, list[Manifest]]:
        """What the figure's job reads, with paths that are valid anywhere."""
        inputs = self.job(name).inputs
        return {
            key: [manifest.read(self.folder / p) for p in paths] for key, paths in inputs.items()
        }

    def measurements(self, name: str) -> pd.DataFrame:
        """The measurements that the figure is drawn from."""
        self.picture(name)
        return join(self.job(name).settings.series, self.manifests(name))


# What was drawn, against the table


def data_lines(ax: Axes) -> list[Line2D]:
    """The lines of a panel that show data."""
    lines = [line for line in ax.get_lines() if not isinstance(line, AxLine)]
    return [line for line in lines if line.get_transform() == ax.transData]


def points_of(*columns: np.ndarray | pd.Series) -> set[tuple[float, ...]]:
    """The points of which all coordinates are numbers, to ten digits."""
    points = np.column_stack([np.asarray(column, dtype=float) for column in columns])
    points = points[np.isfinite(points).all(axis=1)].tolist()
    return {tuple(float(f"{number:.10g}") for number in point) for point in points}


def drawn_points(ax: Axes) -> tuple[set[tuple[float, ...]], set[tuple[float, ...]]]:
    """The points of a panel, and the ends of its bands and bars."""
    points, ends = set(), set()
    for line in data_lines(ax):
        points |= points_of(*line.get_data())
    for drawn in ax.collections:
        if isinstance(drawn, PathCollection):
            points |= points_of(*np.asarray(drawn.get_offsets()).T)
        elif isinstance(drawn, PolyCollection | LineCollection):
            for path in drawn.get_paths():
                ends |= points_of(*path.vertices.T)
    return points, ends


def spoken(picture: Picture) -> str:
    """The words above a figure, with plain spaces."""
    return " ".join(picture.get_suptitle().split())


def legend_words(picture: Picture) -> list[str]:
    """The words of a figure's legend."""
    return [text.get_text() for each in picture.legends for text in each.get_texts()]


def check(picture: Picture, table: pd.DataFrame, layout: str) -> None:
    """Every point in the table is drawn in its panel, with its band or bar, and no other. Lines
    join the points of one segment."""
    panels = dict.fromkeys(str(name) for name in table.panel)
    axes = {str(ax.get_label()): ax for ax in picture.axes}
    assert len(table) and {*panels} <= {*axes}
    for name in panels:
        part = table[table.panel == name]
        rate = part.axis == "rate"
        shown = {name: part[~rate]} | ({STRIP.format(name): part[rate]} if rate.any() else {})
        for label, rows in shown.items():
            ax, grid = axes[label], rows.segment == "grid"
            if grid.any():
                check_contours(ax, rows[grid])
            points, ends = drawn_points(ax)
            assert points == points_of(rows.x[~grid], rows.y[~grid]), label
            across = layout == "compared" or rows.y_axis.isna().all()
            sides = [(x, rows.y) if across else (rows.x, x) for x in (rows.low, rows.high)]
            known = set().union(*(points_of(*side) for side in sides))
            assert known <= ends <= known | points, (label, known - ends, ends - known)
            if layout in ("landscapes", "stages", "laws", "compared"):
                continue
            groups = [group for _, group in rows.groupby(["curve", "segment", "axis"], sort=False)]
            for line, group in zip(data_lines(ax), groups, strict=True):
                assert np.array_equal(line.get_xdata(), group.x), group.segment
                assert np.array_equal(line.get_ydata(), group.y), group.segment


def check_contours(ax: Axes, rows: pd.DataFrame) -> None:
    """The contours of a panel are those of a table."""
    surface = rows.pivot(index="y", columns="x", values="increase")
    for drawn in (each for each in ax.collections if isinstance(each, ContourSet)):
        draw = Picture().subplots().contourf if drawn.filled else Picture().subplots().contour
        again = draw(surface.columns, surface.index, surface, drawn.levels)
        for one, other in zip(drawn.get_paths(), again.get_paths(), strict=True):
            assert np.allclose(one.vertices, other.vertices)


def check_texts(picture: Picture) -> None:
    """No text is too small, hides another, or is cut off at a side."""
    canvas = FigureCanvasAgg(picture)
    canvas.draw()
    boxes = {}
    for text in picture.findobj(Text):
        box = text.get_window_extent(canvas.get_renderer())
        if text.get_visible() and text.get_text().strip() and not is_beyond(text, picture):
            assert text.get_fontsize() >= SMALLEST
            boxes[text] = box.padded(-0.5)
    for one, other in combinations(boxes, 2):
        assert not boxes[one].overlaps(boxes[other]), (one.get_text(), other.get_text())
    for text, box in boxes.items():
        assert box.x0 > -2 and box.x1 < picture.bbox.width + 2, text.get_text()


def is_beyond(text: Text, picture: Picture) -> bool:
    """Whether a text labels a tick outside the limits of its axis, where it is not drawn."""
    for ax in picture.axes:
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if text in (tick.label1, tick.label2):
                    room = 1e-6 * (high - low)
                    return not low - room <= tick.get_loc() <= high + room
    return False
