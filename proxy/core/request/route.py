"""Where a request goes, as far as its layout depends on it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy.core.providers import CacheProfile


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request goes and whose it is, as far as planning needs to know.

    ``scope`` keeps teams and keys apart; ``hint`` is a session id that the client gave ("" for none); ``name`` is the
    model's name here, ``model`` at the upstream; ``reminder`` is the operator's text for the last user message.
    ``upstream`` tells the deployments of one name apart: each has a cache of its own. ``server`` is the
    provider that is called, as far as that is known. ``moving`` are the messages that are taken out and put in at
    another place when what they show changes, by their index: -ln P(a message still stands there in the next request),
    where the proxy has put them there itself.
    """

    scope: str
    name: str
    model: str
    profile: CacheProfile
    hint: str = ""
    reminder: str = ""
    upstream: str = ""
    server: str = ""
    moving: Mapping[int, float] = field(default_factory=dict, hash=False)
