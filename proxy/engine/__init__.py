"""The life of a request: admit, plan, forward, stream back, settle.

The engine knows ports and neither Starlette nor any transport. It drives the client's side (``Client``) and the
upstream's (``Upstream``) in one coroutine: what the client does not take is not read from the upstream, and when the
client leaves, the coroutine is cancelled, which closes the call. Every exchange is settled exactly once, however it
ends.

``intake`` decides about every request: who sends it, who may serve it, and whether there is money. ``chat`` serves
chat requests, ``raw_requests`` all others. Both send their calls by ``attempts``, pass what comes back on by
``answers``, and end in ``conclusion``. ``bodies`` reads of a body what is needed, and ``custody`` knows whose the
account's objects are.
"""

from proxy.engine.attempts.breaker import Breakers
from proxy.engine.conclusion import Conclusion
from proxy.engine.custody import Bounds, Custody
from proxy.engine.engine import Engine
from proxy.engine.intake import RequestRules
from proxy.engine.ports import Client, ClientDisconnected, Limits, Ports
from proxy.engine.suppress import suppress_and_log

__all__ = [
    "Bounds", "Breakers", "Client", "ClientDisconnected", "Conclusion", "Custody", "Engine", "Limits", "Ports",
    "RequestRules", "suppress_and_log",
]  # fmt: skip
