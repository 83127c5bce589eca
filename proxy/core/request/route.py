"""The destination of a request and the texts that are written into it on the way, as far as its layout depends on
them."""

from collections.abc import Mapping

from proxy.core.prompts.composition import Inset
from proxy.core.providers import CacheProfile
from proxy.core.value import dataclass, field


@dataclass(frozen=True, slots=True)
class Route:
    """The destination and the owner of a request, as far as planning needs them.

    ``scope`` keeps teams and keys apart; ``hint`` is a session id that the client gave ("" for none); ``name`` is the
    model's name at the proxy, ``model`` its name at the upstream. ``inset`` are the operator's texts around the newest
    user message; ``earlier`` are the texts that are applied again to user messages in front of it, by the index of the
    message. ``upstream`` tells the deployments of one name apart: each has a cache of its own. ``server`` is the
    provider that is called, as far as it is known. ``moving`` are messages that the proxy has inserted itself and puts
    at another place when their content changes. It maps the index of each to its hazard: -ln P(the message still stands
    there in the next request).
    """

    scope: str
    name: str
    model: str
    profile: CacheProfile
    hint: str = ""
    inset: Inset = Inset()
    upstream: str = ""
    server: str = ""
    earlier: Mapping[int, Inset] = field(default_factory=dict, hash=False)
    moving: Mapping[int, float] = field(default_factory=dict, hash=False)
    repeats: bool = True
    """The texts of earlier turns may be applied again. They may not if the request was fitted to a greatest length
    without them."""

    @property
    def named(self) -> str:
        """The model by both of its names. Facts learnt about one combination say nothing about another."""
        return f"{self.name}/{self.model}"

    @property
    def has_texts(self) -> bool:
        """Whether any of the operator's texts is written into user messages."""
        return bool(self.inset or self.earlier)
