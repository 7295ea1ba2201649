"""What the files under config/ may have, from their types."""

import json
from typing import Any

import yaml
from pydantic import TypeAdapter

from ptq_dynamics.config.loading import TYPES
from ptq_dynamics.config.names import require


def schema(name: str) -> str:
    """The JSON schema of a file, for editors: `runs` for runs.yaml, `scale` for those under
    scales/, ..."""
    return json.dumps(_schema(name), indent=1)


def keys(name: str | None = None) -> str:
    """All keys of a file, or of every one, to be read: its schema as YAML."""
    found = {each: _schema(each) for each in ([name] if name else TYPES)}
    return yaml.safe_dump(found, sort_keys=False, allow_unicode=True, width=100)


def _schema(name: str) -> dict[str, Any]:
    require("--schema or --help-keys", "file of configuration", [name], TYPES)
    return TypeAdapter(TYPES[name]).json_schema()
