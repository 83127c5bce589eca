"""Where a request goes, and what is written into it on the way, as far as its layout depends on it."""

from collections.abc import Mapping

from proxy.core.prompts.composition import Inset
from proxy.core.providers import CacheProfile
from proxy.core.value import dataclass, field


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request goes and whose it is, as far as planning needs to know.

    ``scope`` keeps teams and keys apart; ``hint`` is a session id that the client gave ("" for none); ``name`` is the
    model's name here, ``model`` at the upstream; ``inset`` are the operator's texts around the newest user message,
    ``earlier`` those that are applied again to user messages in front of it, by their index.
    ``upstream`` tells the deployments of one name apart: each has a cache of its own. ``server`` is the provider that
    is called, as far as that is known. ``moving`` are the messages that are taken out and put in at another place when
    what they show changes, by their index: -ln P(a message still stands there in the next request), where the proxy has
    put them there itself.
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
    """The texts of earlier turns may be applied again: no bound of the request's length is kept without them."""

    @property
    def named(self) -> str:
        """The model by both of its names: what is learnt of one of them says nothing of another."""
        return f"{self.name}/{self.model}"

    @property
    def has_texts(self) -> bool:
        """Whether any text of the operator's is written into user messages."""
        return bool(self.inset or self.earlier)
