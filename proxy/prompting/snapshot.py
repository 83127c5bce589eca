"""The registry's prompts at one time. A request uses one snapshot from its beginning to its end."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import orjson

from proxy.core.digest import digest
from proxy.core.prompts.failures import RenderError
from proxy.core.prompts.prompt import Prompt
from proxy.prompting.files import PromptFileError
from proxy.prompting.templates import Templates

_VERSION_BYTES = 6


@dataclass(frozen=True, slots=True)
class Snapshot:
    """``prompts`` stand in the order of their registration. ``version`` names what they say: equal prompts and
    fragments have an equal version, wherever they come from."""

    prompts: tuple[Prompt, ...]
    templates: Templates
    version: str

    @classmethod
    def of(
        cls,
        prompts: Iterable[Prompt] = (),
        fragments: Mapping[str, str] | None = None,
        earlier: "Snapshot | None" = None,
    ) -> "Snapshot":
        """A snapshot of these prompts. Templates that ``earlier`` has compiled are not compiled again. Raises
        PromptFileError where an id stands twice or a template cannot be read."""
        registered = tuple(prompts)
        first: dict[str, Prompt] = {}
        for prompt in registered:
            other = first.setdefault(prompt.id, prompt)
            if other is not prompt:
                raise PromptFileError(
                    f"{prompt.origin}: id: '{prompt.id}' is already the id of {other.origin}; rename one of them, or "
                    "switch the prompts that come along off with 'shipped: false'"
                )
        try:
            templates = Templates(registered, fragments, earlier.templates if earlier is not None else None)
        except RenderError as error:
            raise PromptFileError(str(error)) from error
        return cls(registered, templates, _version(registered, templates.fragments))


def _version(prompts: tuple[Prompt, ...], fragments: Mapping[str, str]) -> str:
    parts = [_bytes(_said(prompt), prompt.origin or prompt.id) for prompt in prompts]
    parts.append(_bytes(sorted(fragments.items()), "fragments"))
    return digest(*parts)[:_VERSION_BYTES].hex()


def _bytes(value: object, place: str) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise PromptFileError(f"{place}: something is no text, or no value that JSON has") from error


def _said(prompt: Prompt) -> list[object]:
    """Everything of a prompt that may change what is composed."""
    return [
        prompt.id,
        prompt.position,
        prompt.text,
        prompt.priority,
        [[condition.field, condition.operator, condition.value] for condition in prompt.conditions],
        [[each.name, each.source, each.required, each.default] for each in prompt.variables],
        prompt.profile,
        prompt.is_literal,
    ]
