"""JSON schemas of the files under config/, for editors: one each, in config/schemas/."""

import json
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from ptq_dynamics.config.grids import KEY, PLACEHOLDER
from ptq_dynamics.config.loading import SECTIONS, TYPES

# Lists of a grid's values.
OVER = {
    "type": "object",
    "description": "the values of every placeholder; one entry is made of each combination",
    "minProperties": 1,
    "additionalProperties": {
        "type": "array",
        "minItems": 1,
        "items": {"type": ["number", "string"]},
    },
}


class _Untitled(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def schemas() -> dict[str, str]:
    """Text of every schema, by the name of its file."""
    return {
        f"{name}.schema.json": json.dumps(_schema(name), indent=1, sort_keys=True) + "\n"
        for name in TYPES
    }


def _schema(name: str) -> dict[str, Any]:
    schema = TypeAdapter(TYPES[name]).json_schema(schema_generator=_Untitled)
    schema["$schema"] = GenerateJsonSchema.schema_dialect
    _close(schema)
    for section in SECTIONS.get(name, ()):
        entries = schema["properties"][section]
        (kinds,) = entries["patternProperties"].values()
        known = {
            key
            for kind in kinds["oneOf"]
            for key in schema["$defs"][kind["$ref"].rpartition("/")[2]]["properties"]
        }
        # What has placeholders has any type before they are filled.
        entries["patternProperties"][PLACEHOLDER.pattern] = {
            "type": "object",
            "required": [KEY],
            "properties": {KEY: OVER},
            "propertyNames": {"enum": sorted({KEY, *known})},
        }
    return schema


def _close(schema: Any) -> None:
    # Pydantic leaves names open that do not follow the pattern.
    if isinstance(schema, dict):
        if "patternProperties" in schema:
            schema["additionalProperties"] = False
        for value in schema.values():
            _close(value)
    elif isinstance(schema, list):
        for value in schema:
            _close(value)
