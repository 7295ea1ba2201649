"""Quantizers, and the scale with its text, of `ptq-dynamics measure`."""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import chdir
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ptq_dynamics import config
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus.sources.own import Texts, joined
from ptq_dynamics.engine.checkout import ROOT
from ptq_dynamics.hub import folders
from ptq_dynamics.quantize.methods.gguf import GgufFile

Yaml = dict[str, Any]  # content of a file of configuration
DEFAULTS, QUANTIZERS = ROOT / "config/own.yaml", ROOT / "config/quantizers.yaml"
BITS = ("2", "3", "4", "5", "6", "7", "8")
# Files that `datasets` reads; other files are text.
TABLES = (".jsonl", ".ndjson", ".json", ".parquet", ".csv", ".tsv")
DATA_SET = r"([\w.-]+/[\w.-]+)@([0-9a-f]{40})"
FEWEST, LEAST = 4, 256  # blocks, and tokens, of validation text
# Parts of held-out text by the settings that read them.
SPLITS = {"evaluation": "validation", "calibration": "calibration", "curvature": "probe"}


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
    return {f"{stem}.gguf": GgufFile.of(path, relative(path, root)).model_dump()}


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
    context: int | None,
    batch: int | None,
    keep: bool,
) -> Yaml:
    """Return a scale of this checkout, by default with the settings of config/own.yaml, and with
    `draws` calibration sets."""
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
    if field is not None:
        if "dataset" not in source:
            raise Problem("--field is for --text in JSON, Parquet, CSV or on the hub; leave it out")
        source["dataset"]["field"] = field
    sizes = {key: main[split] for key, split in SPLITS.items()}
    if given is None:
        scale |= default["settings"]
        main |= default["text"]
        if not curvature:
            scale["curvature"]["tokens"] = context or default["context"]
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
        shape["context"] = min(context or default["context"], *blocks)
    main |= {split: sizes[key] for key, split in SPLITS.items()}
    if source:
        main = {key: main[key] for key in ("vocabulary", *SPLITS.values())}
        main |= {"source": "own", "text": source}
    scale |= {"models": {"main": shape}, "corpora": {"main": main}}
    scale["regime"].pop("left_out", None)
    (scale.get("miniatures") or {}).pop("exponents", None)
    known = config.read_yaml(ROOT / "config/tasks.yaml")
    config.require("--tasks", "task", tasks, known)
    if source and (made := [task for task in tasks if known[task]["source"] == "made"]):
        why = f"{made[0]} is made from docstrings, which --text replaces"
        raise Problem(f"--tasks: {why}; drop one option, or name tasks of lm-evaluation-harness")
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
    top = relative(folder, root)
    about = {"folder": top, "files": [asdict(file) for file in tables or files]}
    return about | ({"dataset": {"path": f"./{top}"}} if tables else {})


def relative(path: str | Path, root: Path) -> str:
    """Return a resolved path relative to the project."""
    return os.path.relpath(Path(path).resolve(), root.resolve())
