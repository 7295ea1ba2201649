"""Manifests: the small files that are the edges of the workflow.

A manifest lists the files of one result with size and sha256, plus the facts that later stages
need (steps, learning rates, ...). It holds no time and no absolute path, so equal results have
equal manifests, whatever their size.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ptq_dynamics.content import sha256
from ptq_dynamics.problem import Problem

VERSION = 1


@dataclass
class Manifest:
    """The files and facts of one result, and the folder they lie in."""

    path: Path
    files: dict[str, dict[str, Any]]
    facts: dict[str, Any]
    _verified: set[str] = field(default_factory=set, repr=False)

    @property
    def folder(self) -> Path:
        """Folder that the file names are relative to."""
        return self.path.parent

    def digest(self) -> str:
        """Hex sha256 over the manifest's content."""
        return hashlib.sha256(self.text().encode()).hexdigest()

    def text(self) -> str:
        """The manifest as it stands on disk."""
        content = {"version": VERSION, "files": self.files, "facts": self.facts}
        return json.dumps(content, sort_keys=True, indent=1, allow_nan=False) + "\n"

    def file(self, name: str) -> Path:
        """Path of one file of the result, after checking that its bytes are the recorded ones.

        Raises `Problem` when the file is missing, truncated or altered.
        """
        path = self.folder / name
        if name in self._verified:
            return path
        mend = f"rebuild it: rm {self.path} and build again"
        if name not in self.files:
            raise Problem(f"{self.path} lists no file {name!r}; {mend}")
        entry = self.files[name]
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            raise Problem(f"{path} is missing; {mend}") from None
        if size != entry["size"]:
            raise Problem(f"{path} has {size} bytes instead of {entry['size']}; {mend}")
        if sha256(path) != entry["sha256"]:
            raise Problem(f"{path} is damaged (its sha256 is not the recorded one); {mend}")
        self._verified.add(name)
        return path

    def subfolder(self, name: str) -> Path:
        """Path of a folder of the result, after checking every file in it (see `file`)."""
        members = [file for file in self.files if file.startswith(f"{name}/")]
        if not members:
            raise Problem(f"{self.path} lists no folder {name!r}; remove that file and rebuild")
        for file in members:
            self.file(file)
        return self.folder / name


def read(path: Path) -> Manifest:
    """Read a manifest; `Problem` when it is missing, not JSON, or of another version."""
    mend = f"remove {path} and build again"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version = content["version"]
        manifest = Manifest(path, content["files"], content["facts"])
    except FileNotFoundError:
        raise Problem(f"{path} is missing; build it with snakemake {path}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise Problem(f"{path} is no manifest ({error}); {mend}") from None
    if version != VERSION:
        raise Problem(f"{path} has version {version}, this code reads {VERSION}; {mend}")
    return manifest


def describe(folder: Path, path: Path, facts: Mapping[str, Any]) -> Manifest:
    """Manifest, to be written to `path`, of every file below `folder` that is not hidden."""
    return Manifest(path, {name: _entry(folder / name) for name in _files(folder)}, dict(facts))


def _files(folder: Path) -> Iterable[str]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and not any(part.startswith(".") for part in name.parts):
            yield name.as_posix()


def _entry(path: Path) -> dict[str, Any]:
    return {"size": path.stat().st_size, "sha256": sha256(path)}
