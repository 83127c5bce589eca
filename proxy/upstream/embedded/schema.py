"""The smallest value that a simple JSON schema accepts."""

from collections.abc import Mapping
from typing import Any

# Deep enough for any real answer, and an end for schemas that refer to themselves.
_MAX_DEPTH = 24


def example_of(schema: Mapping[str, Any]) -> Any:
    """A minimal value of ``schema``: required properties, first choices, lower bounds, local references."""
    return _example(schema, schema, 0)


def _example(schema: object, root: Mapping[str, Any], depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return None
    if "$ref" in schema:
        return _example(_resolve(schema["$ref"], root), root, depth + 1)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        # A null ends a schema that refers to itself.
        null = next((c for c in choices if isinstance(c, Mapping) and c.get("type") == "null"), None)
        return _example(null or choices[0], root, depth + 1)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = "null" if "null" in kind else kind[0]
    return _typed(kind or "object", schema, root, depth)


def _typed(kind: object, schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    match kind:
        case "object":
            properties = schema.get("properties") or {}
            names = schema.get("required", properties)
            return {name: _example(properties.get(name, {}), root, depth + 1) for name in names}
        case "array":
            return [_example(schema.get("items", {}), root, depth + 1) for _ in range(schema.get("minItems", 0))]
        case "string":
            return "text".ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength", None)]
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return False
        case _:
            return None


def _resolve(reference: object, root: Mapping[str, Any]) -> object:
    """A local reference (``#/$defs/name``)."""
    node: object = root
    for name in str(reference).removeprefix("#").strip("/").split("/"):
        if not name:
            continue
        node = node.get(name) if isinstance(node, Mapping) else None
    return node
