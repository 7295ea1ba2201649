"""Jobs: what one process builds, and the specification that names all its result depends on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from ptq_dynamics.base.content import canonical
from ptq_dynamics.engine import fingerprint
from ptq_dynamics.engine.fingerprint.code import DEFINITIONS, Definitions
from ptq_dynamics.engine.paths import Paths
from ptq_dynamics.engine.settings import encode


@dataclass(frozen=True)
class Job:
    """One job: its stage's module, its folder (and the stem of its files, where it shares the
    folder), the manifests it reads by label, its settings (a frozen dataclass), the modules that
    its settings select beside what the stage names, and the distributions whose files it reads."""

    stage: str
    name: str
    folder: str
    inputs: Mapping[str, list[str]]
    settings: Any
    stem: str | None = None
    files: tuple[str, ...] = field(default=())
    modules: tuple[str, ...] = field(default=())
    distributions: tuple[str, ...] = field(default=())

    @cached_property
    def paths(self) -> Paths:
        """Where the parts of the job's result lie."""
        return Paths(Path(self.folder), self.stem)

    @cached_property
    def manifest(self) -> str:
        """Path of the job's manifest."""
        return str(self.paths.manifest)

    @property
    def outputs(self) -> list[str]:
        """Paths of the files that the job is for: those named, or else its manifest."""
        return [f"{self.folder}/{name}" for name in self.files] or [self.manifest]

    @property
    def needs(self) -> list[str]:
        """Paths of all manifests that the job reads."""
        return list(chain.from_iterable(self.inputs.values()))

    @property
    def libraries(self) -> set[str]:
        """Distributions that the job computes with."""
        return set(self.made_with.environment) - set(self.distributions)

    @property
    def made_with(self) -> fingerprint.Fingerprint:
        """Of the code and the libraries that the job's result depends on."""
        return _fingerprint(self.stage, self.modules, self.distributions)

    def table(self) -> dict[str, Definitions]:
        """The definitions that the job's code is, by the digest over them."""
        return {self.made_with.code: self.made_with.definitions}

    def specified(self) -> dict[str, Any]:
        """The job specification, with the fingerprints of code and libraries."""
        found = self.made_with
        return {
            "engine": fingerprint.ENGINE,
            "stage": self.stage,
            "name": self.name,
            "folder": self.folder,
            "stem": self.stem,
            "inputs": self.inputs,
            "settings": encode(self.settings),
            "modules": self.modules,
            "code": found.code,
            "environment": found.environment,
        }

    def spec(self) -> str:
        """The job specification as canonical JSON, with the definitions that its code is, by which
        the job says what was edited."""
        definitions = self.made_with.definitions
        return canonical({**self.specified(), DEFINITIONS: definitions})


@cache
def _fingerprint(
    stage: str, modules: tuple[str, ...], distributions: tuple[str, ...]
) -> fingerprint.Fingerprint:
    return fingerprint.planned(stage, modules, distributions)
