"""What the files under config/ may have, from their types: as a JSON schema for editors, and as
text."""

import json
from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter

from ptq_dynamics.base.fields import MOST
from ptq_dynamics.config.loading import TYPES
from ptq_dynamics.config.names import require

BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
Schema = dict[str, Any]


def schema(name: str) -> str:
    """The JSON schema of a file: `runs` for runs.yaml, `scale` for those under scales/, ..."""
    require("--schema", "file of configuration", [name], TYPES)
    return json.dumps(TypeAdapter(TYPES[name]).json_schema(), indent=1)


def keys(name: str | None = None) -> str:
    """All keys of a file, or of every one: what each may be, and its default."""
    files = [name] if name else list(TYPES)
    return "\n".join(line for each in files for line in _described(each))


def _described(name: str) -> Iterator[str]:
    whole: Schema = json.loads(schema(name))
    yield f"== {name} =="
    for title, each in {"": whole, **whole.get("$defs", {})}.items():
        if title:
            yield f"\n{title}:"
        if "description" in each:
            yield f"  {' '.join(each['description'].split())}"
        if not each.get("properties"):
            yield f"  {_values(each)}"
        for key, value in each.get("properties", {}).items():
            default = "" if key in each.get("required", ()) else f" [{_default(value)}]"
            yield f"  {key}: {_values(value)}{default}"
    yield ""


def _values(schema: Schema) -> str:
    """What a value may be."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "const" in schema or "enum" in schema:
        return " or ".join(map(str, schema.get("enum", [schema.get("const")])))
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(map(_values, choices)))
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_values(schema.get('items') or {})}"
    if kind == "object":
        named = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties")]
        return f"by name, {_values(named[0])}" if isinstance(named[0], dict) else "mapping"
    bounds = [
        f"{sign} {schema[key]}" for key, sign in BOUNDS.items() if schema.get(key, MOST) != MOST
    ]
    return " ".join([kind, " and ".join(bounds)]).strip()


def _default(schema: Schema) -> str:
    return json.dumps(schema.get("default"), ensure_ascii=False)
