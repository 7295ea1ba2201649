"""Writing the project of `ptq-dynamics measure`: the configuration in a folder `root`."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import chdir
from dataclasses import asdict
from pathlib import Path
from typing import Any

from huggingface_hub import constants
from pydantic import TypeAdapter, ValidationError

from ptq_dynamics import config
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.cli import chosen
from ptq_dynamics.config import families
from ptq_dynamics.config.errors import problem
from ptq_dynamics.corpus.sources.own import Texts, joined
from ptq_dynamics.engine.checkout import ROOT
from ptq_dynamics.engine.paths import MANIFEST, SPECIFICATION
from ptq_dynamics.hub import folders
from ptq_dynamics.hub import lock as hub
from ptq_dynamics.plan import own_checkpoints
from ptq_dynamics.quantize.methods import AnyQuantizer, Calibrated
from ptq_dynamics.quantize.methods.gguf_file import GgufFile

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
    checkpoints: Yaml,
    quantizers: Yaml,
    scale: Yaml,
    *,
    count: int,
    average: int | None = None,
    metrics: Iterable[str] = (),
    seed: int = 0,
) -> None:
    """Write the configuration of `count` checkpoints. At the end of the run, `average` of them are
    averaged. The error of one checkpoint is measured with a second calibration set, too."""
    curves, averages = {RUN: [RUN]}, dict[str, Yaml]()
    if average not in (None, 0, *range(2, count + 1)):
        if count == 1:
            raise Problem(f"--average is {average}: must be 0, since there is one checkpoint")
        raise Problem(f"--average is {average}: must be 0, or from 2 to {count} (all checkpoints)")
    files = [name for name, entry in quantizers.items() if entry["method"] == "gguf-file"]
    if files and count > 1:
        raise Problem(f"--methods: {files[0]} is of one checkpoint; name its folder, or --last 1")
    default = config.read_yaml(DEFAULTS)
    average = default["average"] if average is None else average
    if 1 < average <= count:
        mean = f"last-{average}"
        curves[f"average of the last {average}"] = [mean]
        averages[mean] = {"trajectory": RUN, "last": average}
    figure = {**default["figure"], "curves": curves, "quantizers": [*quantizers]}
    figure["metrics"] = ["quantization_error", "loss", *metrics]
    if count == 1 and scale["calibration"].get("draws", 1) > 1:
        calibrated = [name for name, entry in quantizers.items() if _is_calibrated(entry)]
        second = {f"{name}-draw-2": {**quantizers[name], "draw": 2} for name in calibrated}
        figure["draws"] = {name: [f"{name}-draw-2"] for name in calibrated}
        quantizers = quantizers | second
    contents = {
        "config": {"scale": SCALE, "seed": seed, "figures": "all"},
        "runs": {**config.read_yaml(ROOT / "config/runs.yaml"), "runs": {}, "averages": {}},
        "families": {"families": {}, "runs": {}, "averages": averages, "own": {RUN: checkpoints}},
        "quantizers": {**config.read_yaml(QUANTIZERS), **quantizers},
        "figures": {FIGURE: figure},
        "tables": {},
        "tasks": config.read_yaml(ROOT / "config/tasks.yaml"),
        "backends": {"trajectory": RUN, "groups": []},
        f"scales/{SCALE}": scale,
    }
    for name, content in contents.items():
        chosen.write(root / f"config/{name}.yaml", content)


def _is_calibrated(quantizer: Yaml) -> bool:
    return isinstance(TypeAdapter(AnyQuantizer).validate_python(quantizer), Calibrated)


def leave_out_defects(root: Path, checkpoints: Yaml) -> tuple[int, list[str]]:
    """Add defective checkpoints to those that are excluded. Return the number of the others, and a
    line for each model that is not measured."""
    try:
        with chdir(root):
            given = families.Own(**checkpoints)
            own, left = own_checkpoints.without_defects(given, _is_linked)
            count = len(own_checkpoints.measured(own))
    except ValidationError as error:
        raise problem(error, checkpoints, "measure") from None
    print(*(f"{line}\n" for line in left), sep="", end="", flush=True)
    if isinstance(own.checkpoints, families.Local) and own.checkpoints.exclude:
        checkpoints["checkpoints"]["exclude"] = [*own.checkpoints.exclude]
    return count, left


def _is_linked(checkpoint: str, folder: Path) -> bool:
    """Return whether a checkpoint is linked into the project with the files that it has now."""
    place = Path(f"results/{SCALE}/fetch/{RUN}/{checkpoint}")
    if not (place / MANIFEST).is_file():
        return False
    linked = folders.json_object(place / SPECIFICATION)["settings"]["checkpoints"]
    files = [asdict(file) for file in folders.files(folder)]
    return any(each["files"] == files for each in linked)


def checkpoints(
    root: Path, place: str, revisions: str | None, step: str | None, exclude: Sequence[str]
) -> Yaml:
    """Return the place of the checkpoints, and what to exclude. Revisions are locked to commits."""
    folder, entry = root / "config", dict[str, Yaml]()
    earlier = folder / "families.yaml"
    if Path(place).is_dir():
        entry["checkpoints"] = {"folder": _relative(place, root)}
        if exclude:
            entry["checkpoints"]["exclude"] = [*exclude]
    elif revisions is None:
        raise Problem(f"{place} is no folder; for a repository of the hub, add --revisions 'step*'")
    elif constants.HF_HUB_OFFLINE and earlier.is_file():
        known = config.read_yaml(earlier)["own"][RUN]
        entry |= {key: known[key] for key in ("checkpoints", "model")}
    else:
        names = [n for n in hub.revisions(place, revisions) if not folders.is_excluded(n, exclude)]
        if not names:
            raise Problem("--exclude leaves no revision; correct it")
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


def quantizers(
    methods: Sequence[str], counts: Sequence[str], place: str = "", root: Path = Path()
) -> Yaml:
    """Return quantizers by name: of methods, each in some counts of bits, and of GGUF files."""
    known, default = config.read_yaml(QUANTIZERS), config.read_yaml(DEFAULTS)
    if wrong := [bits for bits in counts if bits not in BITS]:
        raise Problem(f"--bits is {wrong[0]!r}: must be from {BITS[0]} to {BITS[-1]}")
    names = {entry["method"] for entry in known.values()} - {"recipe", "gguf"}
    chosen = Yaml()
    for method in methods or default["methods"]:
        if method.lower().endswith(".gguf"):
            chosen |= _gguf_file(root, method, place)
            continue
        if re.fullmatch(r"i?q\d_(k|k_[sml]|xxs|xs|s|m|nl)", method.lower()):
            raise Problem(f"--methods: only llama.cpp quantizes to {method} (llama-quantize)")
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


def _gguf_file(root: Path, name: str, place: str) -> Yaml:
    """Return the quantizer of a GGUF file in the folder of checkpoints, or at a path."""
    path = next((p for p in (Path(place, name), Path(name)) if p.is_file()), None)
    if path is None:
        raise Problem(f"--methods: {place} has no {name}; name one of its files, or a path")
    stem = re.sub(r"[^\w-]+", "-", path.stem, flags=re.ASCII).strip("-_")[-90:]
    return {f"{stem}.gguf": GgufFile.of(path, _relative(path, root)).model_dump()}


def scale(
    root: Path,
    given: str | None,
    text: str | None,
    field: str | None,
    tokens: int | None,
    tasks: Sequence[str],
    *,
    curvature: bool,
    draws: int,
) -> Yaml:
    """Return a scale of this checkout, by default with the settings of config/own.yaml, and with
    `draws` calibration sets."""
    default = config.read_yaml(DEFAULTS)
    name = given or default["scale"]
    config.require("--scale", "scale", [name], config.scales(ROOT / "config"))
    if tokens is not None and (given or tokens < LEAST):
        raise Problem(f"--tokens must be {LEAST} or more, and --scale has its own; leave one out")
    scale: Yaml = config.read_yaml(ROOT / f"config/scales/{name}.yaml")
    main, shape = scale["corpora"]["main"], scale["models"]["main"]
    source = _text(text, root) if text else {}
    if field is not None:
        if "dataset" not in source:
            raise Problem("--field is for --text in JSON, Parquet, CSV or on the hub; leave it out")
        source["dataset"]["field"] = field
    sizes = {key: main[split] for key, split in SPLITS.items()}
    if given is None:
        scale |= default["settings"]
        main |= default["text"]
        if not curvature:
            scale["curvature"]["tokens"] = default["context"]
        sizes = {key: scale[key]["tokens"] for key in SPLITS}
        scale["calibration"]["draws"] = draws
        sizes["calibration"] *= draws
    if source and not curvature:
        sizes["curvature"] = 0
    if given is None:
        with chdir(root):
            texts = Texts(**source) if "files" in source else None
            sizes = _fit(sizes, tokens, texts, default)
        parts = {**sizes, "calibration": sizes["calibration"] // draws}
        for key in SPLITS:
            scale[key]["tokens"] = parts[key] or scale[key]["tokens"]
        blocks = sizes["evaluation"] // FEWEST, *filter(None, parts.values())
        shape["context"] = min(default["context"], *blocks)
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
        for document in texts.documents(joined):
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
