"""The project as its CITATION.cff names it."""

from dataclasses import dataclass
from pathlib import Path

import yaml

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.checkout import ROOT

FILE = "CITATION.cff"


@dataclass(frozen=True)
class Citation:
    """Title, version, licence by its SPDX name, address and makers of the project."""

    title: str
    version: str
    license: str
    url: str
    maker: str


def read(root: Path = ROOT) -> Citation:
    """What the file says; `Problem` where it lacks any of it."""
    try:
        content = yaml.safe_load((root / FILE).read_text(encoding="utf-8"))
        maker = content["authors"][0]["name"]
        named = {key: str(content[key]) for key in ("title", "version", "license", "url")}
    except (OSError, yaml.YAMLError, KeyError, IndexError, TypeError) as error:
        raise Problem(f"{FILE} lacks what a crate names ({error}); restore it from git") from None
    return Citation(**named, maker=maker)
