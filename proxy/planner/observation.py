"""The facts that a request shows about its session, and those that the session learns once the exchange counts."""

from collections.abc import Iterable, Mapping, Sequence

from proxy.kit.value import dataclass, in_common
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
from proxy.protocol.recognition import ContextPiece, FileClaim, PieceKind
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
