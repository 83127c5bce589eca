"""What the sessions of a demo are sent through, and what they are judged by."""

from dataclasses import dataclass

from proxy.core.money.prices import Price
from proxy.core.request.tokens import Encode
from proxy.replay.runner import Setting
from proxy.settings import Settings


@dataclass(frozen=True, slots=True)
class Scene:
    """``settings`` and ``encode`` are the proxy's; ``setting`` are the rules of the provider behind it, whose prices
    are ``price``."""

    settings: Settings
    encode: Encode
    setting: Setting
    price: Price
