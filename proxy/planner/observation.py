"""The facts that a request shows about its session, and those that the session learns once the exchange counts.

At the end are the operator's texts that were sent with earlier turns, and whether they are sent again. When the client
sends a turn again as part of its conversation, the text around that user message is missing. If the text is applied
again, the prefix stays as it was and each later request reads the text. If it is not, the tokens after it are written
to the cache again, once. The cheaper choice is made once for each turn, when the next turn arrives, and is kept from
then on. All of this is in memory: another process, and the next start, do not apply texts of turns that they have not
sent, and these turns are written once more.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum

from proxy.kit.lru import Bounded
from proxy.kit.value import dataclass, field, in_common, replace
from proxy.planner.change_rates import (
    EVERYTHING,
    FIRST_RATE,
    MAX_DOCUMENTS,
    DocumentOdds,
    DocumentSign,
    HistoryDivergence,
)
from proxy.planner.session import (
    REMEMBERED_BREAKS,
    REMEMBERED_GAPS,
    ItemRecord,
    Session,
    record_item,
    remember,
)
from proxy.planner.volatile_lines import changed_places, learnt_lines, replaced_texts
from proxy.protocol.providers import CacheProfile
from proxy.protocol.recognition import ContextPiece, FileClaim, PieceKind
from proxy.protocol.request import Inset
from proxy.protocol.request.transcript import RecognisedRequest

# Hardly ever are this many files, and all that there are, edited at once.
_FEWEST_REWRAPPED = 3

Known = tuple[ContextPiece, ItemRecord | None]
"""A context piece, and its record if it was known."""


@dataclass(frozen=True, slots=True)
class RequestObservation:
    """The facts that a request shows about its session, before it is known whether the exchange will count.

    ``broke`` is the place from which the earlier request is not repeated (None: there is no earlier request). For each
    context piece, ``ages`` holds the number of requests since its last change (0: it just changed), and ``rates`` the
    share of recent requests that changed it. ``replaced`` are the places of the head that hold another text than
    before, not the same text with a few lines changed. ``is_rewrapped``: all files are written in another way than
    before, but, as far as can be told, with the same content. ``gap`` is the number of seconds since the session's
    previous request (None: there is none, or this is a retry of it). ``has_notices``: there are system messages within
    the conversation; ``has_new_notice``: one of them was not in the previous request.
    """

    preamble: tuple[bytes, ...]
    fixed: tuple[bytes, ...]
    turns: tuple[bytes, ...]
    broke: HistoryDivergence | None
    ages: dict[str, int]
    rates: dict[str, float]
    digests: dict[str, bytes]
    is_retry: bool
    replaced: frozenset[int]
    is_rewrapped: bool
    gap: float | None
    has_notices: bool
    has_new_notice: bool


def read_request(session: Session, recognised: RecognisedRequest, tools: bytes, now: float) -> RequestObservation:
    """Compare a request that comes at ``now`` with its session. The session does not change. ``tools`` is the tools'
    digest; it is empty if there are none."""
    head = recognised.messages[: recognised.preamble]
    preamble, fixed = (tools, *[one.digest for one in head]), (tools, *[one.fixed for one in head])
    turns = recognised.turn_digests
    notices = {recognised.transcript.turns[i] for i in recognised.transcript.notices}
    is_later = session.requests > 0
    is_retry = is_later and turns == session.turns
    is_other = is_later and preamble != session.preamble
    replaced = frozenset[int]()
    if is_other:
        # The places where the head has another text: its fixed part has changed, and not only in a few lines.
        texts = {1 + place for place in replaced_texts(session.lines, head)}
        replaced = changed_places(session.fixed, fixed) & frozenset({0, *texts})
    known = [(item, _record(session, item.key)) for item in recognised.items]
    files = [pair for pair in known if pair[0].kind is PieceKind.FILE]
    # A client that writes files in another way tells the model so: a part of its instructions changes.
    is_rewrapped = is_other and not replaced and _are_all_changed(files)
    ages: dict[str, int] = {}
    rates: dict[str, float] = {}
    for item, record in known:
        is_file = item.kind is PieceKind.FILE
        if record is not None:
            is_same = record.digest == item.digest or (is_file and is_rewrapped)
            ages[item.key] = record.age + 1 if is_same else 0
            rates[item.key] = record.next_rate(is_changed=not is_same)
        else:
            ages[item.key] = 1
            if is_file and item.claim is not FileClaim.READ_ONLY:
                rates[item.key] = FIRST_RATE
    broke = None
    if is_later and not is_retry:
        is_continued = turns[: len(session.turns)] == session.turns
        broke = HistoryDivergence(0) if is_continued else _break(session.turns, turns, recognised)
    return RequestObservation(
        preamble=preamble,
        fixed=fixed,
        turns=turns,
        broke=broke,
        ages=ages,
        rates=rates,
        digests={item.key: item.digest for item, _ in known},
        is_retry=is_retry,
        replaced=replaced,
        is_rewrapped=is_rewrapped,
        gap=now - session.last_at if is_later and not is_retry else None,
        has_notices=bool(notices),
        has_new_notice=is_later and bool(notices) and not notices <= set(session.turns),
    )


def commit_preamble(session: Session, recognised: RecognisedRequest) -> None:
    """The exchange counts, and its head is not that of the previous request: learn which lines of the system messages
    changed, and are therefore volatile."""
    head, shared = recognised.messages[: recognised.preamble], session.shared_head
    session.lines, shared.regions = learnt_lines(session.lines, head, shared.regions)


def commit_reading(
    session: Session,
    observation: RequestObservation,
    now: float,
    edits: Iterable[str] = (),
    usual_edit: float = 0.0,
) -> None:
    """The exchange counts: learn gaps, breaks and changed pieces. A retry teaches nothing. ``edits`` are the files that
    an answer may edit. ``usual_edit`` is P(the answer to this request edits any file), as it is expected in general."""
    if observation.is_retry:
        return
    cohort, gap = session.cohort, now - session.last_at if session.requests else None
    if gap is not None:
        # The session that a branch continues may have begun in another cohort.
        cohort.continued += session.requests == 1 or not cohort.continued
        if observation.broke is not None:
            remember(cohort.breaks, observation.broke, REMEMBERED_BREAKS)
        session.own_head.add(session.preamble, observation.preamble, session.replaced)
        session.shared_head.add(session.preamble, observation.preamble, session.replaced)
        session.own_fixed.add(session.fixed, observation.fixed, session.replaced)
        session.replaced = observation.replaced
        remember(session.gaps, gap, REMEMBERED_GAPS)
        session.noticed += observation.has_notices
        session.notices_new += observation.has_new_notice
    cohort.request(now, gap)
    session.requests += 1
    session.last_at = now
    session.preamble, session.fixed, session.turns = observation.preamble, observation.fixed, observation.turns
    if session.usual_edit and not observation.is_rewrapped:
        # Learn whether the previous answer edited any of these files.
        records = [(key, _record(session, key)) for key in edits]
        changed = [record.digest != observation.digests[key] for key, record in records if record is not None]
        if changed:
            cohort.edits.add(session.usual_edit, is_changed=any(changed))
    for key, age in observation.ages.items():
        seen = ItemRecord(observation.digests[key], age, observation.rates.get(key, FIRST_RATE))
        for known in (session.items, cohort.items):
            record_item(known, key, seen, is_rewrapped=observation.is_rewrapped)
    session.usual_edit = usual_edit


def _record(session: Session, key: str) -> ItemRecord | None:
    return session.items.get(key) or session.cohort.items.get(key)


def _are_all_changed(files: Sequence[Known]) -> bool:
    """Whether all known files have changed at once."""
    changed = [record.digest != item.digest for item, record in files if record is not None]
    return len(changed) >= _FEWEST_REWRAPPED and all(changed)


def _break(before: tuple[bytes, ...], after: tuple[bytes, ...], recognised: RecognisedRequest) -> HistoryDivergence:
    common = in_common(before, after)
    # Cleared tool results keep their places.
    lost = [recognised.messages[i].role for i in recognised.own_turns[common : len(before)]]
    distance = len(before) - common if common else EVERYTHING
    return HistoryDivergence(distance, lost.count("tool") if lost[:1] == ["tool"] else 0)


def followed(
    last: Mapping[bytes, DocumentSign], documents: Sequence[bytes], signs: Sequence[DocumentSign], odds: DocumentOdds
) -> dict[bytes, DocumentSign]:
    """Record a request that counts. The ``odds`` learn which of the documents ``last`` it has. Its own documents are
    returned, to be remembered."""
    now = set(documents)
    odds.learn(list(last.values()), [one in now for one in last])
    return dict(zip(documents[:MAX_DOCUMENTS], signs, strict=False))


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
