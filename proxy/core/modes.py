"""How far the proxy may go with a request."""

from enum import IntEnum


class Mode(IntEnum):
    """The modes in ascending order. A request may choose a lower mode than the operator allows, never a higher one.

    - ``PASSTHROUGH``: nothing changes but the model's alias, ``stream_options`` and the removal of ``stratiform``.
    - ``OBSERVE``: as ``PASSTHROUGH``; but the request is planned, and the proxy reports what the plan would have saved.
    - ``MARK``: the order does not change. The client's cache markers stay, and the proxy fills the free markers.
    - ``TIER``: movable pieces are laid out anew, stable pieces first. The proxy places the markers.
    """

    PASSTHROUGH = 0
    OBSERVE = 1
    MARK = 2
    TIER = 3

    @classmethod
    def parse(cls, text: str) -> "Mode":
        """The mode of that name. Raises ValueError naming the choices."""
        try:
            return cls[text.strip().upper()]
        except KeyError:
            raise ValueError(f"mode must be one of passthrough, observe, mark, tier; got {text!r}") from None
