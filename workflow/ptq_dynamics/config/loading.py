"""Reading and validating all files under config/.

In runs.yaml and families.yaml an entry with a key `over` generates entries for all combinations of
its lists: `wsd-{size}: {over: {size: [70m, 160m]}, model: "{size}", ...}` generates wsd-70m and
wsd-160m. The value replaces the braces in the name and in every text of the entry. Words of figures
name values of runs and averages: `LR = {peak_lr of constant-3e-3}`.

Layouts, tables, quantizers and tasks are components: their fields are the configuration, so their
classes are imported here."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain, product
from numbers import Real
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field, TypeAdapter

from ptq_dynamics.base.components import OneOf
from ptq_dynamics.base.fields import Name, Named, Seed, Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims.definitions import Ladder, TableQuery
from ptq_dynamics.config import counts
from ptq_dynamics.config.errors import require, validated
from ptq_dynamics.config.families import Families
from ptq_dynamics.config.runs import Runs, Trunk
from ptq_dynamics.config.scale import Scale
from ptq_dynamics.figures.figure import Figure
from ptq_dynamics.figures.labels import short
from ptq_dynamics.hub.lock import Lock, read_lock
from ptq_dynamics.measure import tasks
from ptq_dynamics.quantize.methods import AnyQuantizer

Task = Annotated[tasks.Task, OneOf("ptq_dynamics.measure.tasks", by="source")]


def _split(value: object) -> object:
    # --config figures="fig04 fig06" more_seeds=102
    if isinstance(value, int):
        return [value]
    return value.split() if isinstance(value, str) and value != "all" else value


class Choice(Strict):
    """What to build. Headline figures have `more_seeds`. `deep` verifies every byte of results."""

    scale: Name
    seed: Seed
    more_seeds: Annotated[tuple[Seed, ...], BeforeValidator(_split)] = ()
    figures: Annotated[
        Literal["all"] | Annotated[list[str], Field(min_length=1)], BeforeValidator(_split)
    ]
    deep: bool = False


class Backends(Strict):
    """What `make backends` compares: `groups` of quantizers with equal settings."""

    trajectory: str
    groups: list[Annotated[list[str], Field(min_length=1)]]


class Config(Strict):
    """All of config/ for one scale, in the `folder`, with the `lock` of public checkpoints."""

    folder: Path = Field(exclude=True)
    lock: Lock = Field(exclude=True)
    choice: Choice
    scale: Scale
    runs: Runs
    families: Families
    quantizers: Named[AnyQuantizer]
    figures: Named[Figure]
    tasks: Named[Task]
    backends: Backends
    tables: Named[TableQuery]

    @property
    def file(self) -> str:
        """Path of the scale's file."""
        return str(self.folder / "scales" / f"{self.choice.scale}.yaml")

    @property
    def chosen(self) -> list[str]:
        """The chosen figures here; a group means its figures, and `all` those without a group."""
        groups, words = grouped(self.figures), self.choice.figures
        named = [words] if isinstance(words, str) else words
        figures = dict.fromkeys(chain.from_iterable(groups.get(name, [name]) for name in named))
        return [name for name in figures if name in self.figures]

    @property
    def is_whole(self) -> bool:
        """Whether `all` is among the chosen figures."""
        return "all" in self.choice.figures


def grouped(figures: Mapping[str, Figure]) -> dict[str, list[str]]:
    """Return the names of figures by group; those of no group are `all`."""
    groups: dict[str, list[str]] = {"all": []}
    for name, figure in figures.items():
        groups.setdefault(figure.group or "all", []).append(name)
    return groups


# Types of the files by name without suffix; the files under scales/ have the type `scale`.
_CHOSEN = ("folder", "lock", "choice")  # what a choice decides
_PARTS = {n: field.annotation for n, field in Config.model_fields.items() if n not in _CHOSEN}
TYPES: dict[str, Any] = {"config": Choice, "ladder": Ladder, **_PARTS}
# Files directly in the folder config/.
FILES = [f"{name}.yaml" for name in (*TYPES, "own", "formats") if name != "scale"]
# Variables of `make` by the key of a choice.
BY_MAKE = {"scale": "SCALE", "figures": "FIGURES", "more_seeds": "SEEDS", "deep": "DEEP"}


def scales(folder: Path = Path("config")) -> list[str]:
    """Return the names of the scales, from the files under `folder`/scales."""
    return sorted(path.stem for path in folder.glob("scales/*.yaml"))


def load(choice: Mapping[str, object], folder: Path) -> Config:
    """Return all files under `folder`, validated for a choice; `Problem` names file and key."""
    for path in folder.glob("[!.]*.y*ml"):
        require(str(path), "file of configuration", [path.name], FILES)
    own: Runs = read_file(folder / "runs.yaml", "runs")
    families: Families = read_file(folder / "families.yaml", "families")
    families.check()
    files = [name for name in _PARTS if name not in ("scale", "runs", "families")]
    parts = {
        name: read_file(folder / f"{name}.yaml", name, References(own, families)) for name in files
    }
    place = folder / "config.yaml"
    written = read_yaml(place)
    try:
        chosen = validated(TypeAdapter(Choice), choice, str(place))
        require(f"{place}: scale", "scale", [chosen.scale], scales(folder))
        named = [] if chosen.figures == "all" else chosen.figures
        figures = parts["figures"]
        require(f"{place}: figures", "figure", named, [*figures, *grouped(figures)])
    except Problem as problem:
        text = str(problem)
        for key in (key for key, value in choice.items() if value != written.get(key)):
            text = re.sub(rf"^{re.escape(str(place))}: {key}\b", BY_MAKE.get(key, key), text)
        raise Problem(text) from None
    file = folder / "scales" / f"{chosen.scale}.yaml"
    scale: Scale = read_file(file, "scale")
    counts.check_counts(scale, counts.read_counts(folder / counts.FILE), str(file))
    require(f"{file}: most_seeds", "figure", scale.most_seeds, figures)
    for name, most in scale.most_seeds.items():
        figures[name] = figures[name].model_copy(update={"headline": most})
    for name, run in own.runs.items():
        if isinstance(run, Trunk) and run.model not in scale.models:
            others = (
                read_file(folder / "scales" / f"{name}.yaml", "scale") for name in scales(folder)
            )
            known = {model for other in others for model in other.models}
            require(f"{folder / 'runs.yaml'}: runs.{name}.model", "model", [run.model], known)
    lock = read_lock(folder / "families.lock.json")
    parts |= {"runs": own, "families": families}
    return Config(folder=folder, lock=lock, choice=chosen, scale=scale, **parts)


def schema(name: str) -> dict[str, object]:
    """Return the JSON schema of a file by its name in `TYPES`."""
    require("--help-keys", "file of configuration", [name], TYPES)
    return TypeAdapter(TYPES[name]).json_schema()


# The loader in C, if PyYAML has it: every start of Snakemake reads all files.
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(LOADER):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        # YAML silently takes the last of duplicate keys.
        seen = set[object]()
        for key, _ in node.value:
            if key.value in seen:
                line = key.start_mark.line + 1
                raise ValueError(f"line {line} repeats the key {key.value}; keep one")
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file; `Problem` if it is missing or invalid."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except FileNotFoundError:
        mend = f"run this in the checkout, or restore it with git checkout {path}"
        raise Problem(f"{path} is missing; {mend}") from None
    except (yaml.YAMLError, ValueError, RecursionError, TypeError) as error:
        raise Problem(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None


VALUE = re.compile(r"\{\s*([^\s{}]+)\s+of\s+([^\s{}]+)\s*\}")
SHORTENED = ("peak_lr", "weight_decay")  # written as 3e-3


@dataclass(frozen=True)
class References:
    """Fills in values of these runs, and of the runs and averages of these families."""

    runs: Runs
    families: Families

    def filled(self, content: object, place: str) -> object:
        """Return content of a file with values in all texts and keys. `Problem` names the place of
        a wrong one, and of two keys that become equal."""
        if isinstance(content, str):
            return VALUE.sub(partial(self._value, place), content)
        if not isinstance(content, dict):
            return content
        filled = dict[object, object]()
        for written, value in content.items():
            key = self.filled(written, place)
            if key in filled:
                raise Problem(f"{place} has {key!r} twice; change one, or the run that it names")
            filled[key] = self.filled(value, f"{place}.{written}".replace(":.", ": "))
        return filled

    def _value(self, place: str, reference: re.Match[str]) -> str:
        parts, name = reference[1].split("."), reference[2]
        for entry in self._lineage(place, name):
            value = reduce(lambda at, part: getattr(at, part, None), parts, entry)
            if isinstance(value, Real):
                is_short = parts[-1] in SHORTENED and value
                return short(float(value)) if is_short else f"{float(value):g}"
        raise Problem(f"{place} has {reference[0]}, but {name} has no number {reference[1]}")

    def _lineage(self, place: str, name: str) -> Iterator[object]:
        """Yield a run or average, the trunks that it continues, and its family or the defaults."""
        families, runs = self.families, self.runs
        entries = {**families.averages, **families.runs, **runs.averages, **runs.runs}
        require(place, "run or average", [name], entries)
        seen = dict[str, object]()
        while name in entries and name not in seen:
            seen[name] = entries[name]
            name = getattr(entries[name], "trunk", "")
        yield from seen.values()
        last = getattr([*seen.values()][-1], "family", None)
        yield families.families.get(last or "", runs.defaults)


def read_file(path: Path, name: str, references: References | None = None) -> Any:
    """Return a file of a type in `TYPES`, figures with the values of `references`; raises `Problem`
    as `load` does."""
    content = read_yaml(path)
    for section in ("runs", "averages") if name in ("runs", "families") else ():
        if isinstance(content, dict) and isinstance(content.get(section), dict):
            content[section] = expand(content[section], f"{path}: {section}")
    if references is not None and name == "figures":
        content = references.filled(content, f"{path}:")
    return validated(TypeAdapter(TYPES[name]), content, str(path))


def expand(entries: Mapping[object, object], place: str) -> dict[object, object]:
    """Return entries with all combinations of `over`; `Problem` if two get one name."""
    expanded = dict[object, object]()
    for written, entry in entries.items():
        lists = entry.get("over", {}) if isinstance(entry, dict) else {}
        if not isinstance(lists, dict) or not all(isinstance(e, list) for e in lists.values()):
            where = f"{place}.{written}.over"
            raise Problem(f"{where} is {lists!r}: must be a mapping of names to lists")
        for values in product(*lists.values()):
            name, filled = written, entry
            for key, value in zip(lists, values, strict=True):
                braces, text = f"{{{key}}}", str(value)
                name, filled = _filled(name, braces, text), _filled(filled, braces, text)
            if name in expanded:
                raise Problem(f"{place}.{written} and another entry generate {name!r}; rename one")
            if lists and isinstance(filled, dict):
                filled = {key: value for key, value in filled.items() if key != "over"}
            expanded[name] = filled
    return expanded


def _filled(value: object, braces: str, text: str) -> object:
    if isinstance(value, dict):
        return {key: _filled(part, braces, text) for key, part in value.items()}
    if isinstance(value, list):
        return [_filled(part, braces, text) for part in value]
    return value.replace(braces, text) if isinstance(value, str) else value
