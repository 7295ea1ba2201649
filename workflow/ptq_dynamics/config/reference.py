"""The reference of all keys of the configuration, in Markdown, from the types of its files."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ptq_dynamics.base.fields import MOST
from ptq_dynamics.config.schemas import schemas

# In the order in which one reads them; where the file of each lies under config/.
FILES = {
    "config": "config.yaml",
    "scale": "scales/SCALE.yaml",
    "runs": "runs.yaml",
    "families": "families.yaml",
    "quantizers": "quantizers.yaml",
    "tasks": "tasks.yaml",
    "figures": "figures.yaml",
    "claims": "claims.yaml",
    "tables": "tables.yaml",
    "backends": "backends.yaml",
    "sweep": "sweeps/NAME.yaml",
}
INTRODUCTION = """# Keys of the configuration

Written by `ptq-dynamics schema` from the types in `workflow/ptq_dynamics/config/`, as the schemas
in `config/schemas/` are. A key without a default has to be there. What files are for is told in
[config/README.md](../config/README.md).
"""
SIGNS = {
    "minimum": "≥",
    "exclusiveMinimum": ">",
    "maximum": "≤",
    "exclusiveMaximum": "<",
}
PLAIN = {
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "boolean": "true or false",
    "null": "null",
    "object": "mapping",
    "array": "list",
}

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class _File:
    """The schema of a file, and under which headings its classes are told."""

    schema: Schema
    headings: Mapping[str, str]

    def values(self, schema: Schema) -> str:
        """What a value may be."""
        if "$ref" in schema:
            name = self.headings[schema["$ref"].rpartition("/")[2]]
            return f"[{name}](#{_anchor(name)})"
        if "const" in schema:
            return _code(schema["const"])
        if "enum" in schema:
            return ", ".join(map(_code, schema["enum"]))
        for choice in ("anyOf", "oneOf"):
            if choice in schema:
                return " or ".join(dict.fromkeys(map(self.values, schema[choice])))
        kind = schema.get("type")
        if kind == "array":
            return self._list(schema)
        if kind == "object":
            return self._mapping(schema)
        if isinstance(kind, list):
            return " or ".join(PLAIN[each] for each in kind)
        bounds = [
            f"{sign} {schema[key]}"
            for key, sign in SIGNS.items()
            if key in schema and schema[key] != MOST
        ]
        said = PLAIN[kind] if kind else "anything"
        if bounds:
            said += f" {' and '.join(bounds)}"
        return f"{said} like {_code(schema['pattern'])}" if "pattern" in schema else said

    def _list(self, schema: Schema) -> str:
        if "prefixItems" in schema:
            return f"[{', '.join(map(self.values, schema['prefixItems']))}]"
        least = "one or more" if schema.get("minItems") == 1 else "list of"
        return f"{least}: {self.values(schema['items'])}" if "items" in schema else "list"

    def _mapping(self, schema: Schema) -> str:
        named = self.entries(schema)
        return "mapping" if named is None else f"by name: {self.values(named)}"

    def entries(self, schema: Schema) -> Schema | None:
        """What stands under names of the user's own, where such may be."""
        patterns = schema.get("patternProperties", {})
        # A name with placeholders stands for a grid of others.
        named = [each for pattern, each in patterns.items() if not pattern.startswith("\\{")]
        other = schema.get("additionalProperties")
        return next(iter(named), other if isinstance(other, dict) else None)

    def keys(self, schema: Schema) -> Iterator[str]:
        """A table of the keys of a mapping that has known ones."""
        if not schema.get("properties"):
            return
        required = schema.get("required", ())
        yield "\n| key | value | default |\n|---|---|---|\n"
        for key, each in schema["properties"].items():
            default = "" if key in required else _code(each.get("default"))
            yield f"| `{key}` | {_cell(self.values(each))} | {_cell(default)} |\n"


def reference() -> str:
    """All keys of every file: what each may be, and what it is where it is left out."""
    read = {name.partition(".")[0]: json.loads(text) for name, text in schemas().items()}
    told = dict[str, str]()
    parts = [INTRODUCTION]
    for name, place in FILES.items():
        file = _File(read[name], _headings(read[name], told))
        parts += _told(file, place, told)
        for kind, heading in file.headings.items():
            told.setdefault(heading, json.dumps(file.schema["$defs"][kind]))
    return "".join(parts)


def _told(file: _File, place: str, told: Mapping[str, str]) -> Iterator[str]:
    """The section of a file."""
    yield f"\n## {place}\n"
    yield from _described(file.schema)
    if (named := file.entries(file.schema)) is not None:
        yield f"\nBy name: {file.values(named)}.\n"
    yield from file.keys(file.schema)
    for kind, schema in file.schema.get("$defs", {}).items():
        if (heading := file.headings[kind]) not in told:
            yield f"\n### {heading}\n"
            yield from _described(schema)
            yield from file.keys(schema)


def _described(schema: Schema) -> Iterator[str]:
    if "description" in schema:
        yield f"\n{schema['description']}\n"


def _headings(schema: Schema, told: Mapping[str, str]) -> dict[str, str]:
    """By the names of a file's classes. Files share some; a layout may be called as another class
    is."""
    found = dict[str, str]()
    for kind, each in schema.get("$defs", {}).items():
        taken = told.get(kind)
        is_other = taken is not None and taken != json.dumps(each)
        found[kind] = f"{kind}, a layout" if is_other and "layout" in each["properties"] else kind
        if is_other and found[kind] == kind:
            raise ValueError(f"two types of configuration are called {kind}; rename one")
    return found


def _anchor(heading: str) -> str:
    """As public forges make them."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _code(value: Any) -> str:
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    return f"`{text}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
