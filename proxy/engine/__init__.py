"""The life of a request: admit, plan, forward, stream back, settle.

The engine knows only ports, and neither Starlette nor any transport. It drives the client's side (``Client``) and the
upstream's (``Upstream``) in one coroutine. So it reads from the upstream only as fast as the client reads. When the
client leaves, the coroutine is cancelled, which closes the call. Every exchange is settled exactly once, however it
ends.

``intake`` checks every request: its sender, the deployments that may serve it, and its budget. ``chat`` serves chat
requests, and ``raw_requests`` serves all others. Both send their calls with ``attempts``, pass the answers on with
``relay``, and end in ``conclusion``. ``bodies`` reads the needed parts of a body, and ``custody`` knows which team
owns which objects of the account.
"""

from proxy.engine.attempts import Breakers
from proxy.engine.conclusion import Conclusion
from proxy.engine.custody import Bounds, Custody
from proxy.engine.engine import Engine
from proxy.engine.intake import RequestRules
from proxy.engine.ports import Client, ClientDisconnected, Limits, Ports
from proxy.kit.tasks import suppress_and_log

__all__ = [
    "Bounds", "Breakers", "Client", "ClientDisconnected", "Conclusion", "Custody", "Engine", "Limits", "Ports",
    "RequestRules", "suppress_and_log",
]  # fmt: skip
