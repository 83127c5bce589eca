"""Puts what the levels of a configuration say about composing on top of each other."""

from collections.abc import Mapping
from dataclasses import fields, replace

from proxy.core.prompts.prompt import Json
from proxy.core.prompts.terms import PromptLayer, PromptTerms

_REPLACED = tuple(field.name for field in fields(PromptLayer) if field.name != "context")


def layered(base: PromptTerms, *layers: PromptLayer) -> PromptTerms:
    """The terms with what each layer says; a later layer wins. The context is added to, root by root and name by
    name."""
    for layer in layers:
        said = {name: value for name in _REPLACED if (value := getattr(layer, name)) is not None}
        base = replace(base, **said, context=_added(base.context, layer.context))
    return base


def _added(
    base: Mapping[str, Mapping[str, Json]], more: Mapping[str, Mapping[str, Json]]
) -> Mapping[str, Mapping[str, Json]]:
    return {**base, **{root: {**base.get(root, {}), **values} for root, values in more.items()}} if more else base
