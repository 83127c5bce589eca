"""Whether the documents in a client's system prompts change: until they were seen to, they stay where they are."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from proxy.core.digest import digest

_MAX_PROMPTS = 32
# P(the next request has other documents), of a prompt that was seen once: most such documents are retrieved, but what
# belongs to a prompt is written like them. To mark them all the same must pay: that is what a client's markers do.
_CHANGE = 0.4


class DocumentSets:
    """The last set of documents in each system prompt, which is known by the digest of the rest of it, and how often it
    was repeated."""

    __slots__ = ("_changing", "_last")

    def __init__(self) -> None:
        self._last: OrderedDict[bytes, tuple[bytes, int]] = OrderedDict()
        self._changing: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._last) + len(self._changing)

    def notice(self, prompt: bytes, documents: Sequence[bytes]) -> None:
        """A request has these documents in its system prompt."""
        now = digest(*documents)
        before, repeated = self._last.get(prompt, (now, -1))
        if before != now:
            self.add((prompt,))
        self._keep(prompt, now, repeated + 1 if before == now else 0)

    def add(self, prompts: Iterable[bytes]) -> None:
        """Prompts whose documents others have seen to change."""
        for prompt in prompts:
            self._changing[prompt] = None
            self._changing.move_to_end(prompt)
        while len(self._changing) > _MAX_PROMPTS:
            self._changing.popitem(last=False)

    def last(self) -> list[tuple[bytes, bytes, int]]:
        """The last set in each prompt, and how often it was repeated, the newest prompt last."""
        return [(prompt, documents, repeated) for prompt, (documents, repeated) in self._last.items()]

    def adopt(self, last: Iterable[tuple[bytes, bytes, int]]) -> None:
        """The last sets as others have left them, who went on from these."""
        for prompt, documents, repeated in last:
            self._keep(prompt, documents, repeated)

    def is_changing(self, prompt: bytes) -> bool:
        """Whether this prompt's documents were seen to change."""
        return prompt in self._changing

    def change(self, prompt: bytes) -> float:
        """P(the next request has other documents) in a prompt whose documents were not seen to change."""
        _, repeated = self._last.get(prompt, (b"", 0))
        return _CHANGE / (1 + repeated)

    def changing(self) -> list[bytes]:
        """Every prompt whose documents were, the newest last."""
        return list(self._changing)

    def _keep(self, prompt: bytes, documents: bytes, repeated: int) -> None:
        self._last[prompt] = documents, max(0, repeated)
        self._last.move_to_end(prompt)
        if len(self._last) > _MAX_PROMPTS:
            self._last.popitem(last=False)
