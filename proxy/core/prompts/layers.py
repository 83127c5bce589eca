"""Puts what the levels of a configuration say about composing on top of each other, and what the client asks for on top
of these, as far as it may.
"""

from dataclasses import fields, replace

from proxy.core.model_patterns import matches_any
from proxy.core.prompts.context import added
from proxy.core.prompts.terms import ClientWish, PromptLayer, PromptTerms
from proxy.errors import Forbidden

_REPLACED = tuple(field.name for field in fields(PromptLayer) if field.name != "context")
_FLAGS = ("tools", "plugins", "agents")
_ASKED = ("persona", "profile", "override", *_FLAGS)
_PARAM = "stratiform.prompts"
_HEADERS = ("persona", "profile")
"""What a header may say instead."""


def layered(base: PromptTerms, *layers: PromptLayer) -> PromptTerms:
    """The terms with what each layer says; a later layer wins. The context is added to: objects are merged name by
    name."""
    for layer in layers:
        said = {name: value for name in _REPLACED if (value := getattr(layer, name)) is not None}
        base = replace(base, **said, context=added(base.context, layer.context) if layer.context else base.context)
    return base


def client_terms(terms: PromptTerms, wish: ClientWish) -> PromptTerms:
    """The terms with what the client asks for. Raises Forbidden (``prompts_not_allowed``) for what the terms do not
    allow; what they say already may be asked for always."""
    asked = {name: value for name in _ASKED if (value := getattr(wish, name)) not in ("", None, getattr(terms, name))}
    for name, value in asked.items():
        if not _is_allowed(terms, name, value):
            raise _refusal(name, wish)
    if wish.extras and not terms.allowed.extras:
        raise _refusal("extra", wish)
    for root in wish.context:
        if root not in terms.allowed.context:
            raise _refusal(f"context.{root}", wish)
    if wish.context:
        terms = replace(terms, context=added(terms.context, wish.context), own_context=terms.context)
    return replace(terms, **asked, extras=(*terms.extras, *wish.extras))


def _is_allowed(terms: PromptTerms, name: str, value: str) -> bool:
    allowed = terms.allowed
    if name == "persona":
        return matches_any(allowed.personas, value)
    if name == "profile":
        return matches_any(allowed.profiles, value)
    return allowed.flags if name in _FLAGS else allowed.override


def _refusal(field: str, wish: ClientWish) -> Forbidden:
    header = f" and the header x-stratiform-{field}" if field in _HEADERS else ""
    message = f"the configuration of this key does not allow '{_PARAM}.{field}'{header}: leave it out"
    param = f"x-stratiform-{field}" if field in wish.by_header else f"{_PARAM}.{field}"
    return Forbidden(message, param=param, code="prompts_not_allowed")
