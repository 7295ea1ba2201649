"""Manifests: the files of one result with size and sha256, and facts for later stages. Equal
results have equal manifests. The record beside a manifest has the same content."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict  # which pydantic requires before Python 3.12

from ptq_dynamics.base.content import sha256, write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.paths import ABSENT, RECORD, beside, command


class File(TypedDict):
    """Size in bytes, and hex digest."""

    size: int
    sha256: str


Files = dict[str, File]
Facts = dict[str, Any]  # JSON; whoever reads a fact knows its type from the stage that wrote it


@dataclass
class Manifest:
    """The files and facts of one result, and the path of its manifest."""

    path: Path
    files: Files
    facts: Facts
    restore: "Callable[[Manifest], None] | None" = field(default=None, repr=False)
    _verified: set[str] = field(default_factory=set, repr=False)

    @property
    def folder(self) -> Path:
        """The folder of the result."""
        return self.path.parent

    def text(self) -> str:
        """Return the content of the manifest's file."""
        content = {"files": self.files, "facts": self.facts}
        return json.dumps(content, sort_keys=True, indent=1, allow_nan=False) + "\n"

    def digest(self) -> str:
        """Return the hex sha256 of the manifest's text."""
        return hashlib.sha256(self.text().encode()).hexdigest()

    def file(self, name: str) -> Path:
        """Return the path of one file after its bytes were compared with the manifest; a dropped
        file is built again. Raises `Problem` if the file is missing or has other bytes."""
        path, mend = self.folder / name, "build with DEEP=1 to make it again"
        if name not in self._verified:
            if name not in self.files:
                raise Problem(f"{self.path} lists no file {name!r}; {mend}")
            if self.restore is not None and not path.exists() and name in self.dropped():
                self.restore(self)
                restored = read(self.path)
                if any(restored.files.get(other) != self.files[other] for other in self._verified):
                    raise Problem(f"{self.path} changed during this job; run the command again")
                self.files, self.facts = restored.files, restored.facts
            if harm := self._differs(name, deep=True):
                raise Problem(f"{harm}; {mend}")
            self._verified.add(name)
        return path

    def subfolder(self, name: str) -> Path:
        """Return the path of a folder of the result after all its files were verified."""
        for file in [file for file in self.files if file.startswith(f"{name}/")] or [f"{name}/"]:
            self.file(file)
        return self.folder / name

    def harm(self, deep: bool = False) -> str | None:
        """Describe the first file that is missing without being dropped, or has another size, or
        with `deep` other bytes; None if there is none."""
        absent = {name for name in self.dropped() if not (self.folder / name).exists()}
        harms = (self._differs(name, deep) for name in self.files if name not in absent)
        return next(filter(None, harms), None)

    def _differs(self, name: str, deep: bool) -> str | None:
        path, entry = self.folder / name, self.files[name]
        try:
            size = path.stat().st_size
            if size != entry["size"]:
                return f"{path} has {size} bytes instead of {entry['size']}"
            if deep and sha256(path) != entry["sha256"]:
                return f"{path} has other bytes than were published"
        except FileNotFoundError:
            return f"{path} is missing"
        except OSError as error:
            return f"{path} cannot be read ({error.strerror})"
        return None

    def dropped(self) -> set[str]:
        """Return the names of files that were dropped to save space."""
        with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
            content = json.loads(beside(self.path, ABSENT).read_text(encoding="utf-8"))
            # A result that was rebuilt since then has all its files.
            if content["manifest"] == self.digest():
                return set(content["files"])
        return set()

    def drop(self, names: Iterable[str]) -> None:
        """Delete files of the result; its manifest and record stay."""
        gone = self.dropped().union(names) & self.files.keys()
        write_atomically(beside(self.path, ABSENT), self.note(gone))
        for name in gone:
            (self.folder / name).unlink(missing_ok=True)

    def note(self, names: Iterable[str]) -> str:
        """Return the content of the file that lists dropped files."""
        return json.dumps({"manifest": self.digest(), "files": sorted(names)}, indent=1) + "\n"


def written(path: Path) -> int:
    """Return when a file was last written, in ns; -1 if it is missing."""
    with suppress(OSError):
        return path.stat().st_mtime_ns
    return -1


def read(path: Path, restore: Callable[[Manifest], None] | None = None) -> Manifest:
    """Read a manifest, or the record beside it if Snakemake has removed the manifest. Raises
    `Problem` if both are missing, or the content is invalid."""
    place = path if path.exists() else beside(path, RECORD)
    try:
        content = json.loads(place.read_text(encoding="utf-8"))
        names = content["files"]
        if outside := [name for name in names if name.startswith("/") or ".." in name.split("/")]:
            raise ValueError(f"{outside[0]} lies outside of its folder")
        return Manifest(path, names, content["facts"], restore)
    except FileNotFoundError:
        raise Problem(f"{path} is missing; build it with {command(path)}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Problem(f"{place} is no manifest ({error}); remove {place} and build again") from None


def describe(folder: Path, path: Path, facts: Mapping[str, object]) -> Manifest:
    """Return the manifest for `path` of all files below `folder` that are not hidden."""
    names = (file.relative_to(folder) for file in sorted(folder.rglob("*")) if file.is_file())
    files: Files = {
        name.as_posix(): {"size": (folder / name).stat().st_size, "sha256": sha256(folder / name)}
        for name in names
        if not any(part.startswith(".") for part in name.parts)
    }
    # On disk, tuples are lists.
    return Manifest(path, files, json.loads(json.dumps(dict(facts), allow_nan=False)))
