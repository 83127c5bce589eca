"""Remembers the operator's texts that were sent with earlier turns, and decides whether they are sent again.

When the client sends a turn again as part of its conversation, the text around that user message is missing. If
the text is applied again, the prefix stays as it was and each later request reads the text. If it is not, the tokens
after it are written to the cache again, once. The cheaper choice is made once for each turn, when the next turn
arrives, and is kept from then on. All of this is in memory: another process, and the next start, do not apply texts of
turns that they have not sent, and these turns are written once more.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

from proxy.kit.lru import Bounded
from proxy.kit.value import dataclass, field, replace
from proxy.protocol.providers import CacheProfile
from proxy.protocol.request import Inset

# P(the prefix is still stored) within its TTL and after its TTL: some providers keep it longer.
_STORED = 1.0
_OUTLIVED = 0.1
# The bounds of how many further requests of the conversation are expected: about as many as there have been.
_FEWEST_REQUESTS = 10
_MOST_REQUESTS = 60
_RECORD_BYTES = 400


class Again(StrEnum):
    """Whether the text of a turn is sent with it again: if that is expected to be cheaper, always, or never."""

    BY_PRICE = "by-price"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class AppliedTexts:
    """The texts around user messages before the newest one. ``texts`` are by the messages' indices. ``kept`` are the
    keys of their turns. ``decided`` says for turns whether their text is sent from now on. ``newest`` is the key of the
    newest turn, and ``head`` is a digest of the part before the conversation. ``before`` is what is remembered of the
    request before; None: no request had texts."""

    texts: Mapping[int, Inset] = field(default_factory=dict)
    kept: Sequence[bytes] = ()
    decided: Mapping[bytes, bool] = field(default_factory=dict)
    newest: bytes = b""
    head: bytes = b""
    before: "SentText | None" = None


@dataclass(frozen=True, slots=True)
class StoredPrompt:
    """The prompt that the provider has stored: the end of its storage (unix seconds; 0: it stores nothing), the
    prompt's tokens, how many tokens at its end are not stored, and how many of the previously stored tokens were
    read."""

    until: float = 0.0
    tokens: int = 0
    loose_tokens: int = 0
    read_tokens: int = 0


@dataclass(frozen=True, slots=True)
class SentText:
    """The text that was sent with a turn. ``tokens`` are those that it added. ``stored`` and ``head`` are of the turn's
    newest request, and ``number`` counts the conversation's requests up to it. ``lost_tokens`` are the tokens at the
    end of a stored prompt that the next request did not read although all texts stayed, because that part changes
    anyway. ``is_kept`` is the decision; None: there is none yet."""

    inset: Inset = field(repr=False)
    tokens: int = 0
    number: int = 1
    stored: StoredPrompt = StoredPrompt()
    head: bytes = b""
    lost_tokens: int = 0
    is_kept: bool | None = None


class TurnTexts:
    """Remembers the text that was ``sent`` with each turn. The least recently used one is dropped first."""

    def __init__(self, *, capacity_bytes: int, again: Again = Again.BY_PRICE) -> None:
        self._again = again
        self.sent: Bounded[bytes, SentText] = Bounded(
            capacity_bytes, lambda sent: _RECORD_BYTES + 2 * (len(sent.inset.before) + len(sent.inset.after))
        )

    def earlier(
        self,
        turns: Sequence[tuple[int, bytes]],
        head: bytes,
        profile: CacheProfile,
        now: float,
        tokens_from: Callable[[int], int],
        signed: int = -1,
    ) -> AppliedTexts:
        """The texts of the turns before the newest one. ``turns`` are the user messages' indices, each with the key of
        the conversation up to it. ``head`` is a digest of the part before the conversation. ``tokens_from`` gives the
        tokens of the conversation from a message up to the end of the prompt before. Before the message ``signed``
        each text stays, because signed thinking binds it. This changes nothing: ``commit`` does, when the exchange
        counts."""
        if not turns:
            return AppliedTexts()
        newest = turns[-1][1]
        latest = next((sent for _, key in reversed(turns) if (sent := self.sent.get(key)) is not None), None)
        if latest is None:
            return AppliedTexts(newest=newest, head=head)
        chance = _chance(latest, head, now)
        texts: dict[int, Inset] = {}
        kept: list[bytes] = []
        decided: dict[bytes, bool] = {}
        for index, key in turns[:-1]:
            sent = self.sent.get(key)
            if sent is None or not sent.inset:
                continue
            is_kept = sent.is_kept
            if is_kept is None:
                behind = max(0, tokens_from(index) - max(latest.stored.loose_tokens, latest.lost_tokens))
                is_cheaper = applies_again(sent.tokens, behind, profile, latest.number, chance)
                is_asked = is_cheaper if self._again is Again.BY_PRICE else self._again is Again.ALWAYS
                is_kept = decided[key] = is_asked or index < signed
                if not is_kept:
                    chance = 0.0  # the tokens after it are written again in any case
            if is_kept:
                texts[index] = sent.inset
                kept.append(key)
        return AppliedTexts(texts, kept, decided, newest, head, latest)

    def sent_with(self, turn: bytes) -> Inset | None:
        return sent.inset if (sent := self.sent.get(turn)) is not None else None

    def commit(self, applied: AppliedTexts, inset: Inset, tokens: int, stored: StoredPrompt, now: float) -> None:
        """The exchange counts. ``inset`` was sent with the newest turn, and added ``tokens``. A conversation that has
        never had a text takes no memory."""
        before = applied.before
        for key, is_kept in applied.decided.items():
            if (sent := self.sent.get(key)) is not None:
                self.sent.put(key, replace(sent, is_kept=is_kept))
        for key in applied.kept:
            if key in self.sent:
                self.sent.move_to_end(key)
        if applied.newest and (inset or before is not None):
            number = before.number + 1 if before is not None else 1
            lost = _lost(before, applied, stored, now) if before is not None else 0
            self.sent.put(applied.newest, SentText(inset, tokens, number, stored, applied.head, lost))


def applies_again(text_tokens: int, tokens_behind: int, profile: CacheProfile, requests: int, chance: float) -> bool:
    """Whether it is expected to be cheaper to send a text with its turn again than to write the tokens after it again.
    ``requests`` is how many requests the conversation has had, and ``chance`` is P(the prefix is still stored)."""
    later = min(max(requests, _FEWEST_REQUESTS), _MOST_REQUESTS)
    now = chance * profile.read + (1.0 - chance) * profile.write
    return text_tokens * (now + later * profile.read) <= chance * (profile.write - profile.read) * tokens_behind


def _chance(latest: SentText, head: bytes, now: float) -> float:
    """P(the prefix of the request before is still stored, and is the beginning of this one)."""
    if not latest.stored.until or head != latest.head:
        return 0.0
    return _STORED if now < latest.stored.until else _OUTLIVED


def _lost(before: SentText, applied: AppliedTexts, stored: StoredPrompt, now: float) -> int:
    """``SentText.lost_tokens`` after a request. If the request shows nothing about it, it is the value known before."""
    was = before.stored
    if now >= was.until or not stored.tokens or not all(applied.decided.values()):
        return before.lost_tokens
    return max(0, was.tokens - was.loose_tokens - stored.read_tokens)
