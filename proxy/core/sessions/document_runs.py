"""The retrieved documents of a session's last request: in how many requests in a row each stands, and its signs."""

from collections.abc import Sequence

from proxy.core.stability.document_retention import DocumentOdds, DocumentSign

_MAX_DOCUMENTS = 24


class DocumentRuns:
    """The last request's documents by digest, in the client's order."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: dict[bytes, DocumentSign] = {}

    def state(self) -> list[tuple[bytes, DocumentSign]]:
        """All of them, and what was seen of each."""
        return list(self.last.items())

    def restore(self, state: Sequence[tuple[bytes, DocumentSign]]) -> None:
        """Remember these, and no others."""
        self.last = dict(state[:_MAX_DOCUMENTS])

    def are_lasting(self, documents: Sequence[bytes]) -> bool:
        """Whether the last two requests had all of these, as far as is remembered."""
        return all(one in self.last and self.last[one].run > 1 for one in documents[:_MAX_DOCUMENTS])

    def signs(self, documents: Sequence[bytes], asked: Sequence[tuple[float, float]]) -> list[DocumentSign]:
        """What a request shows of its documents; ``asked`` as in ``DocumentSign``, for each."""
        last = max(1, len(documents) - 1)
        return [
            DocumentSign(rank / last - 0.5, self.last[one].run + 1 if one in self.last else 1, *words)
            for rank, (one, words) in enumerate(zip(documents, asked, strict=True))
        ]

    def follow(self, documents: Sequence[bytes], signs: Sequence[DocumentSign], odds: DocumentOdds) -> None:
        """A request that counts."""
        now = set(documents)
        odds.learn(list(self.last.values()), [one in now for one in self.last])
        self.last = dict(zip(documents[:_MAX_DOCUMENTS], signs, strict=False))
