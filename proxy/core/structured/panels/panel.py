"""One panel, and the kinds of panels that are known."""

from collections.abc import Mapping
from types import MappingProxyType

from proxy.core.digest import digest
from proxy.core.value import dataclass
from proxy.core.wire.surrogates import utf8

CONVERSATION = "chat"
"""The panel that stands for the conversation itself: the conversation is sent as messages, so this panel is never
shown."""
HISTORY_KIND = "conversation_history"
"""The kind of a panel that holds a frozen part of the conversation."""
FROZEN_PREFIX = "history_"
"""The prefix of the id of a frozen part of the conversation. No client's panel has such an id."""
OWN_KIND = "own"
"""Every unknown kind counts as this kind, in metrics and estimates."""

HAZARDS: Mapping[str, float] = MappingProxyType(
    {
        HISTORY_KIND: 0.0,
        "skill": 0.01,
        "library": 0.02,
        "tools": 0.02,
        "memory": 0.05,
        "tree": 0.1,
        "file": 0.1,
        "git": 0.2,
        "github": 0.2,
        "scratchpad": 0.2,
        "todo": 0.3,
        OWN_KIND: 0.3,
        "logs": 0.5,
        "spine": 0.5,
        "statistics": 0.9,
        "console": 0.9,
    }
)
"""The probability that a panel's content changes before the next request, by its kind, as long as the session has not
shown it. The order is an estimate: first frozen text, then panels that the client derives from settled state, last
panels that count or stream. It only decides which panel stands in front if several panels have changed at the same
time."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel as the client sends it now. ``id`` consists of ASCII letters, digits, ``_`` and ``-``, so that it can be
    a part of a call's id; it stands once in a request. ``header`` is one line. An empty ``content`` is not shown."""

    id: str
    kind: str
    header: str
    content: str

    @property
    def digest(self) -> bytes:
        """The digest of the shown text: header and content."""
        return digest(utf8(self.header), b"\n", utf8(self.content))

    @property
    def label(self) -> str:
        """The kind as a metric's label: one of the known kinds."""
        return self.kind if self.kind in HAZARDS else OWN_KIND

    @property
    def is_frozen(self) -> bool:
        """Whether the proxy made the panel from a part of the conversation. Such a panel stands in front of the
        conversation."""
        return self.id.startswith(FROZEN_PREFIX)

    @property
    def is_shown(self) -> bool:
        """Whether the panel reaches the model."""
        return self.id != CONVERSATION and bool(self.content)
