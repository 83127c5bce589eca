"""What a client asks of composing. Whether it may is decided in ``proxy.core.prompts.layers``."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy.core.prompts.prompt import Json, Prompt


@dataclass(frozen=True, slots=True)
class ClientWish:
    """What a request says; "" and None say nothing. ``extras`` are literal, and ``context`` has roots of the context
    only. ``by_header`` are those of ``persona`` and ``profile`` that a header says."""

    persona: str = ""
    profile: str = ""
    override: str = field(default="", repr=False)
    tools: bool | None = None
    plugins: bool | None = None
    agents: bool | None = None
    context: Mapping[str, Mapping[str, Json]] = field(default_factory=dict, repr=False)
    extras: tuple[Prompt, ...] = ()
    by_header: frozenset[str] = frozenset()
