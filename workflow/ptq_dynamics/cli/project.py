"""Writing the project of `ptq-dynamics measure`: the configuration in a folder `root`."""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import chdir
from dataclasses import asdict
from pathlib import Path
from typing import Any

from huggingface_hub import constants
from pydantic import ValidationError

from ptq_dynamics import config
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.cli import chosen, deleted
from ptq_dynamics.cli.deleted import Shards
from ptq_dynamics.config import families
from ptq_dynamics.config.errors import problem
from ptq_dynamics.config.families import Local
from ptq_dynamics.corpus.sources.own import Texts
from ptq_dynamics.engine.checkout import ROOT
from ptq_dynamics.hub import folders
from ptq_dynamics.hub import lock as hub
from ptq_dynamics.plan import own_checkpoints

Yaml = dict[str, Any]  # content of a file of configuration
DEFAULTS, QUANTIZERS = ROOT / "config/own.yaml", ROOT / "config/quantizers.yaml"
BITS = ("2", "3", "4", "5", "6", "7", "8")
SCALE, FIGURE, RUN = "own", "quantization", "run"
LOCK = Path("families.lock.json")
# Files that `datasets` reads; other files are text.
TABLES = (".jsonl", ".ndjson", ".json", ".parquet", ".csv", ".tsv")
DATA_SET = r"([\w.-]+/[\w.-]+)@([0-9a-f]{40})"
FEWEST, LEAST = 4, 256  # blocks, and tokens, of validation text
# Parts of held-out text by the settings that read them.
SPLITS = {"evaluation": "validation", "calibration": "calibration", "curvature": "probe"}


def write(
    root: Path,
    runs: Mapping[str, Yaml],
    quantizers: Yaml,
    scale: Yaml,
    *,
    average: int | None = None,
    metrics: Sequence[str] = (),
    seed: int = 0,
    grows: bool = False,
    lost: Shards = frozenset(),
) -> None:
    """Write the configuration of runs by name. `average` consecutive checkpoints are averaged, if
    there are so many; there may be too few while a run `grows`.
    Checkpoints and averages are left out that are `lost`, since their weights were deleted."""
    default, curves = config.read_yaml(DEFAULTS), dict[str, list[str]]()
    averages, own = dict[str, Yaml](), dict[str, Yaml]()
    size = default["average"] if average is None else average
    for key, (name, entry) in zip(keys(runs), runs.items(), strict=True):
        own[key], mean = entry, f"last-{size}" if key == RUN else f"{key}-last-{size}"
        try:
            with chdir(root):
                model = families.Own(**entry)
                last = len(own_checkpoints.measured(model))
                if isinstance(model.checkpoints, Local):
                    links = deleted.linked(Path("results", SCALE, "fetch", key), model.checkpoints)
                    gone = [e for e in links if (key, e["checkpoint"]["id"]) not in lost]
                    gone = gone[-(model.last - last) :] if model.last else gone
                    own[key] = {**entry, "deleted": [] if last == model.last else gone}
                if not lost:
                    print(
                        *(f"{line}\n" for line in own_checkpoints.left_out(model)), sep="", end=""
                    )
        except ValidationError as error:
            raise problem(error, entry, "measure") from None
        every = last + len(own[key].get("deleted", ()))
        if average not in (None, 0, *range(2, every + 1)) and (average == 1 or not grows):
            most = f", or from 2 to {every} (all checkpoints)" * (every > 1)
            raise Problem(f"--average is {average}: must be 0{most}")
        curves[name] = [key]
        without = sorted(shard for of, shard in lost if of == mean)
        if size > 1 and every - size + 1 > len(without):
            label = f"average of the last {size}"
            curves[label if len(runs) == 1 else f"{label} of {name}"] = [mean]
            averages[mean] = {"trajectory": key, "last": size, "without": without}
    figure = {**default["figure"], "curves": curves, "quantizers": [*quantizers]}
    figure["metrics"] = ["quantization_error", "loss", *metrics]
    contents = {
        "config": {"scale": SCALE, "seed": seed, "figures": "all"},
        "runs": {**config.read_yaml(ROOT / "config/runs.yaml"), "runs": {}, "averages": {}},
        "families": {"families": {}, "runs": {}, "averages": averages, "own": own},
        "quantizers": {**config.read_yaml(QUANTIZERS), **quantizers},
        "figures": {FIGURE: figure},
        "tables": {},
        "tasks": config.read_yaml(ROOT / "config/tasks.yaml"),
        "backends": {"trajectory": RUN, "groups": []},
        f"scales/{SCALE}": scale,
    }
    for file, content in contents.items():
        chosen.write(root / f"config/{file}.yaml", content)
    with chdir(root):
        has_deleted = any(entry.get("deleted") for entry in own.values())
        more = deleted.lost(chosen.plan()) if has_deleted else ()
    for of, shard in sorted(more):
        print(f"{shard} of {of} is left out: it was deleted, and not measured as it is now")
    if more:
        write(
            root,
            runs,
            quantizers,
            scale,
            average=average,
            metrics=metrics,
            seed=seed,
            grows=grows,
            lost={*lost, *more},
        )


def keys(runs: Collection[str]) -> list[str]:
    """Return the names of the trajectories of runs."""
    return [RUN, *(f"{RUN}-{number}" for number in range(2, len(runs) + 1))]


def checkpoints(root: Path, key: str, place: str, revisions: str | None, step: str | None) -> Yaml:
    """Return the place of the checkpoints of a run; revisions are locked to commits."""
    folder, entry = root / "config", dict[str, Yaml]()
    earlier = folder / "families.yaml"
    if Path(place).is_dir():
        entry["checkpoints"] = {"folder": _relative(place, root)}
    elif revisions is None:
        raise Problem(f"{place} is no folder; for a repository of the hub, add --revisions 'step*'")
    elif constants.HF_HUB_OFFLINE and earlier.is_file():
        known = config.read_yaml(earlier)["own"][key]
        entry |= {key: known[key] for key in ("checkpoints", "model")}
    else:
        names = hub.revisions(place, revisions)
        _, failed = hub.lock([hub.Wanted(place, name) for name in names], folder / LOCK)
        if failed:
            raise Problem(failed[0])
        commit = hub.read(folder / LOCK)[place][names[0]].commit
        entry["checkpoints"] = {"repository": place, "revisions": names}
        entry["model"] = {**hub.model(place, names[0], commit)}
    if step:
        entry["checkpoints"]["step"] = step
    return entry


def rate(root: Path, lr: str | None) -> str | None:
    """Return the learning rate: a file, or a number; None if the checkpoints have it."""
    if lr is None or lr == "trainer_state":
        return None
    return _relative(lr, root) if Path(lr).is_file() else lr


def _relative(path: str | Path, root: Path) -> str:
    """Return a resolved path relative to the project."""
    return os.path.relpath(Path(path).resolve(), root.resolve())


def quantizers(methods: Sequence[str], counts: Sequence[str]) -> Yaml:
    """Return quantizers by name: of methods, each in some counts of bits."""
    known, default = config.read_yaml(QUANTIZERS), config.read_yaml(DEFAULTS)
    if wrong := [bits for bits in counts if bits not in BITS]:
        raise Problem(f"--bits is {wrong[0]!r}: must be from {BITS[0]} to {BITS[-1]}")
    names, chosen = {entry["method"] for entry in known.values()} - {"recipe"}, Yaml()
    for method in methods or default["methods"]:
        config.require("--methods", "method", [method], names | known.keys())
        same = {name: entry for name, entry in known.items() if method in (name, entry["method"])}
        if len(same) == 1:
            chosen |= same
        else:
            first = next(iter(same.values()))
            widths = map(int, counts or default["bits"])
            chosen |= {f"{method}-{bits}bit": {**first, "bits": bits} for bits in widths}
    if other := {*map(int, counts)} - {entry["bits"] for entry in chosen.values()}:
        raise Problem(f"--bits {min(other)} fits no given method; leave --bits out")
    return chosen


def scale(
    root: Path,
    given: str | None,
    text: str | None,
    tokens: int | None,
    tasks: Sequence[str],
    *,
    curvature: bool,
    context: int | None = None,
    batch: int | None = None,
    keep: bool = False,
) -> Yaml:
    """Return a scale of this checkout, by default with the settings of config/own.yaml."""
    default = config.read_yaml(DEFAULTS)
    name = given or default["scale"]
    config.require("--scale", "scale", [name], config.scales(ROOT / "config"))
    if tokens is not None and (given or tokens < LEAST):
        raise Problem(f"--tokens must be {LEAST} or more, and --scale has its own; leave one out")
    if context is not None and given:
        raise Problem("--scale has its own --context; leave one out")
    scale: Yaml = config.read_yaml(ROOT / f"config/scales/{name}.yaml")
    main, shape = scale["corpora"]["main"], scale["models"]["main"]
    source = _text(text, root) if text else {}
    sizes = {key: main[split] for key, split in SPLITS.items()}
    if given is None:
        scale |= default["settings"]
        main |= default["text"]
        if not curvature:
            scale["curvature"]["tokens"] = context or default["context"]
        sizes = {key: scale[key]["tokens"] for key in SPLITS}
    if source and not curvature:
        sizes["curvature"] = 0
    if given is None:
        with chdir(root):
            texts = Texts(**source) if "files" in source else None
            sizes = _fit(sizes, tokens, texts, default)
        for key in SPLITS:
            scale[key]["tokens"] = sizes[key] or scale[key]["tokens"]
        blocks = sizes["evaluation"] // FEWEST, *filter(None, sizes.values())
        shape["context"] = min(context or default["context"], *blocks)
    main |= {split: sizes[key] for key, split in SPLITS.items()}
    if source:
        main = {key: main[key] for key in ("vocabulary", *SPLITS.values())}
        main |= {"source": "own", "text": source}
    scale |= {"models": {"main": shape}, "corpora": {"main": main}}
    scale["regime"].pop("left_out", None)
    (scale.get("miniatures") or {}).pop("exponents", None)
    if tasks and not scale.get("tasks"):
        raise Problem(f"--tasks: scale {name} has no tasks; leave --scale out")
    names = {"names": [*tasks], "at_chance": [], "shots_of": {}}
    scale["tasks"] = {**scale["tasks"], **names} if tasks else None
    for part in filter(None, (scale["evaluation"], scale["calibration"], scale["tasks"])):
        part["batch"] = batch or part["batch"]
    # A job has one checkpoint, and is the first to need so much memory.
    scale |= {"shard": 1, "jobs_per_device": 1}
    scale["keep"] = {**scale.get("keep", {}), "average": "all" if keep else "none"}
    return scale


def _fit(
    sizes: Mapping[str, int], tokens: int | None, texts: Texts | None, default: Yaml
) -> dict[str, int]:
    """Return tokens of splits, fewer if texts are short. Raises `Problem` if they are too short."""
    usual, characters = sizes["evaluation"], default["text"]["characters_per_token"]
    others = sum(sizes.values()) - usual
    count = most = characters * ((tokens or usual) + others)
    if texts:
        count = 0
        for document in texts.documents():
            count += len(document)
            if count >= most:
                break
        least = default["shortest"]
        if tokens:
            least = max(least, characters * (tokens + min(others, tokens * others // usual)))
        if count < least:
            mend = f"give {least:,} or more" + (", or lower --tokens" if tokens else "")
            raise Problem(f"--text has {count:,} characters without blank lines; {mend}")
    available = count // characters
    evaluation = tokens or min(usual, usual * available // (usual + others))
    rest = min(others, available - evaluation)
    return {key: size * rest // others for key, size in sizes.items()} | {"evaluation": evaluation}


def _text(place: str, root: Path) -> Yaml:
    """Return the place of text: files, or a data set."""
    path = Path(place)
    if not path.exists():
        if (named := re.fullmatch(DATA_SET, place)) is None:
            raise Problem(f"--text is {place!r}: must be a file, a folder, or OWNER/NAME@COMMIT")
        return {"dataset": {"path": named[1], "revision": named[2]}}
    folder, name = (path, None) if path.is_dir() else (path.parent, path.name)
    files = folders.listed(folder, lambda file: file == name or (not name and file[0] != "."))
    tables = [file for file in files if file.name.lower().endswith(TABLES)]
    others = {*os.listdir(folder)} - {file.name for file in tables or files}
    if others and not name:
        print(f"--text: left out are {', '.join(sorted(others))}")
    top = _relative(folder, root)
    about = {"folder": top, "files": [asdict(file) for file in tables or files]}
    return about | ({"dataset": {"path": f"./{top}"}} if tables else {})
