"""How far the proxy may go with a request."""

from enum import IntEnum


class Mode(IntEnum):
    """Ordered: a request may lower what the operator allows, never raise it.

    - ``PASSTHROUGH``: untouched but for the model's alias, ``stream_options`` and the removal of ``stratiform``.
    - ``OBSERVE``: the same; plan, and report what it would have saved.
    - ``MARK``: order untouched; the client's cache markers stay, free marker slots are filled.
    - ``TIER``: movable pieces are re-laid stable-first; markers are ours to place.
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
