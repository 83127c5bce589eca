"""The smallest value that a simple JSON schema accepts."""

from collections.abc import Mapping
from typing import Any

from proxy.upstream.embedded.blocks import refuse

# An end for schemas that refer to themselves; OpenAI allows 5000 properties and 10 levels ("Structured outputs").
_MAX_VALUES = 5000
_MAX_DEPTH = 24


def example_of(schema: Mapping[str, Any]) -> Any:
    """A minimal value of ``schema``: required properties, first choices, lower bounds, local references. Raises
    UpstreamRejected (400) for what is no schema."""
    try:
        return _Builder(schema).value(schema, 0)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise refuse("Invalid schema for response_format.", "response_format", "invalid_json_schema") from error


class _Builder:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._values = 0

    def value(self, schema: Mapping[str, Any], depth: int) -> Any:
        self._values += 1
        if self._values > _MAX_VALUES or depth > _MAX_DEPTH:
            raise ValueError("the schema asks for too much")
        if "$ref" in schema:
            return self.value(self._resolve(schema["$ref"]), depth + 1)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return schema["enum"][0]
        choices = schema.get("anyOf") or schema.get("oneOf")
        if choices:
            # A null ends a schema that refers to itself.
            null = next((choice for choice in choices if choice.get("type") == "null"), None)
            return self.value(null or choices[0], depth + 1)
        kind = schema.get("type", "object")
        if isinstance(kind, list):
            kind = "null" if "null" in kind else kind[0]
        return self._typed(kind, schema, depth)

    def _typed(self, kind: object, schema: Mapping[str, Any], depth: int) -> Any:
        match kind:
            case "object":
                properties = schema.get("properties", {})
                names = schema.get("required", properties)
                return {name: self.value(properties.get(name, {}), depth + 1) for name in names}
            case "array":
                count = min(schema.get("minItems", 0), _MAX_VALUES)
                return [self.value(schema.get("items", {}), depth + 1) for _ in range(count)]
            case "string":
                return "text".ljust(min(schema.get("minLength", 0), _MAX_VALUES), "x")[: schema.get("maxLength")]
            case "integer" | "number":
                return schema.get("minimum", 0)
            case "boolean":
                return False
            case _:
                return None

    def _resolve(self, reference: str) -> Any:
        """A local reference (``#/$defs/name``)."""
        node: Any = self._root
        for name in filter(None, reference.removeprefix("#").split("/")):
            node = node[name]
        return node
