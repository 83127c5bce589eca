"""What fitting a request to its context window gives."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy.core.reasons import Edit


@dataclass(frozen=True, slots=True)
class Fitted:
    """A request that fits. ``body`` is the same object as the body that came, where nothing was changed. ``edits`` says
    how many messages were left out and how many parts were shortened.

    ``sizes`` are tokens by component, for logs: ``system``, ``tools``, ``conversation``, ``newest``, ``parts``,
    ``extra``, ``prompt`` (their sum), ``output``, ``margin`` and ``window``; a component that is 0, and a window that
    nobody knows, is left out. ``counted_tokens`` is the prompt as the proxy counts it, before the model's factor; 0
    where it is not to be learnt from.
    """

    body: bytes = field(repr=False)
    edits: Mapping[Edit, int] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    counted_tokens: int = 0
