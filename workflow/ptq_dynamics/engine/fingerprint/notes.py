"""What earlier builds found the code of jobs to be, for the same sources.

To follow the code of all stages takes a third of the time in which a build with nothing to do ends.
It depends on the sources and on Python alone, so it is kept with their digest, beside Snakemake's
own notes, which may be lost at any time.
"""

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from ptq_dynamics.engine.fingerprint.code import Code

NOTES = Path(".snakemake/ptq-dynamics-code.json")


class Notes:
    """The code of jobs by their stage and the modules that their settings select."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._digest = sha256(json.dumps([sys.version, sorted(sources.items())]).encode())
        self._known = self._read()
        self._written = len(self._known)

    def get(self, stage: str, modules: Sequence[str]) -> Code | None:
        """What is known."""
        return self._known.get(_key(stage, modules))

    def add(self, stage: str, modules: Sequence[str], code: Code) -> None:
        """Take something down."""
        self._known[_key(stage, modules)] = code

    def write(self) -> None:
        """Keep what was found for later builds; where nothing can be written they find it anew."""
        if len(self._known) == self._written:
            return
        content = {"sources": self._digest.hexdigest(), "code": self._known}
        with contextlib.suppress(OSError):
            NOTES.parent.mkdir(exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=NOTES.parent)
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(content, file)
            os.replace(name, NOTES)

    def _read(self) -> dict[str, Code]:
        try:
            content = json.loads(NOTES.read_bytes())
            if content["sources"] != self._digest.hexdigest():
                return {}
            return {key: Code(*code) for key, code in content["code"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}


def _key(stage: str, modules: Sequence[str]) -> str:
    return " ".join([stage, *modules])
