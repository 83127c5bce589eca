"""What a plugin may add. An implementation takes only the arguments that it wants."""

import pluggy

from proxy.core.recognition.pieces import Recogniser

PROJECT = "stratiform"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class Hooks:
    """Start-up hooks: each returns typed objects, collected once when the proxy starts."""

    @hookspec
    def register_recognisers(self) -> list[Recogniser]:  # type: ignore[empty-body]
        """Recognisers of a client's texts. They must be pure, linear in the text, and cover it exactly once."""
