"""Manifests: the small files that are the edges of the workflow.

A manifest lists the files of one result with size and sha256, plus the facts that later stages
need (steps, learning rates, ...). It holds no time and no absolute path, so equal results have
equal manifests, whatever their size.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ptq_dynamics.base.content import parsed, sha256, write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.paths import ABSENT, MANIFEST, beside

VERSION = 1
ENTRY = {"size", "sha256"}
DROPPING = "drop"  # the folder of the results of jobs that drop files


@dataclass
class Manifest:
    """The files and facts of one result, and the folder they lie in."""

    path: Path
    files: dict[str, dict[str, Any]]
    facts: dict[str, Any]
    restore: "Callable[[Manifest], None] | None" = field(default=None, repr=False)
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
        if self.restore is not None and not path.exists() and name in self.dropped():
            self.restore(self)
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            what = "was dropped to save space" if name in self.dropped() else "is missing"
            raise Problem(f"{path} {what}; {mend}") from None
        if size != entry["size"]:
            raise Problem(f"{path} has {size} bytes instead of {entry['size']}; {mend}")
        if sha256(path) != entry["sha256"]:
            raise Problem(f"{path} is damaged (its sha256 is not the recorded one); {mend}")
        self._verified.add(name)
        return path

    def trusted(self) -> "Manifest":
        """The same, whose files another process of the job has checked."""
        return replace(self, restore=None, _verified=set(self.files))

    def dropped(self) -> set[str]:
        """Names of the files that were dropped to save space, and are made again on demand.

        Raises `Problem` where the note of that is damaged.
        """
        try:
            content = parsed(self._absent.read_text(encoding="utf-8"))
            # A result that was made anew since then has all its files.
            return set(content["files"]) if content["manifest"] == self.digest() else set()
        except FileNotFoundError:
            return set()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Problem(
                f"{self._absent} does not say what was dropped ({error}); remove it and build again"
            ) from None

    def drop(self, names: Iterable[str], by: str) -> None:
        """Delete files of the result; it stays known, and they are made again when they are
        needed. `by` is the manifest of the job that drops them."""
        gone = self.dropped().union(names) & self.files.keys()
        write_atomically(self._absent, self.note(gone, by))
        for name in gone:
            (self.folder / name).unlink(missing_ok=True)

    def note(self, names: Iterable[str], by: str) -> str:
        """What says, beside the manifest, which files of the result are absent, and by what."""
        content = {"manifest": self.digest(), "files": sorted(names), "by": by}
        return json.dumps(content, indent=1) + "\n"

    def is_whole(self) -> None:
        """All files of the result are there again, until a build drops them anew."""
        forget_dropped(self.path)

    @property
    def state(self) -> Literal["present", "absent", "missing"]:
        """Whether all files are there, or all but dropped ones (known but absent), or fewer."""
        gone = {name for name in self.files if not (self.folder / name).exists()}
        if not gone:
            return "present"
        return "absent" if gone <= self.dropped() else "missing"

    @property
    def _absent(self) -> Path:
        return beside(self.path, ABSENT)

    def subfolder(self, name: str) -> Path:
        """Path of a folder of the result, after checking every file in it (see `file`)."""
        members = [file for file in self.files if file.startswith(f"{name}/")]
        if not members:
            raise Problem(f"{self.path} lists no folder {name!r}; remove that file and rebuild")
        for file in members:
            self.file(file)
        return self.folder / name


def read(path: Path, restore: Callable[[Manifest], None] | None = None) -> Manifest:
    """Read a manifest; `restore` makes dropped files of its result again.

    Raises `Problem` when it is missing, not JSON, or of another version.
    """
    mend = f"remove {path} and build again"
    try:
        content = parsed(path.read_text(encoding="utf-8"))
        version = content["version"]
        if any(entry.keys() != ENTRY for entry in content["files"].values()):
            raise ValueError("a file without size and sha256")
        if outside := [name for name in content["files"] if _is_outside(name)]:
            raise ValueError(f"{outside[0]} lies outside of its folder")
        manifest = Manifest(path, content["files"], content["facts"], restore)
    except FileNotFoundError:
        raise Problem(f"{path} is missing; build it with snakemake {path}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Problem(f"{path} is no manifest ({error}); {mend}") from None
    if version != VERSION:
        raise Problem(f"{path} has version {version}, this code reads {VERSION}; {mend}")
    return manifest


def forget_dropped(path: Path) -> None:
    """Nothing of the result with this manifest counts as dropped, nor its dropping as done."""
    absent = beside(path, ABSENT)
    if absent.exists():
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            by = Path(parsed(absent.read_text(encoding="utf-8"))["by"])
            if by.name == MANIFEST and DROPPING in by.parts and not _is_outside(str(by)):
                by.unlink(missing_ok=True)
        absent.unlink()


def _is_outside(name: str) -> bool:
    return name.startswith("/") or ".." in name.split("/")


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
