"""Finds out why caches missed in logs of other programs, what the misses cost, and what would help.

Logs come in; the worst culprits of each client, prices and sentences with advice go out. Nothing here uses the
network, and no text of a prompt is kept, shown or stored.

``CallIntake`` takes the calls as they are read. It turns their prompts into digests and sizes, and keeps the bodies of
some of them for a replay. ``Entries`` keeps the calls in the order of time. ``CacheRules`` are the rules and prices for
the models of the log. By them ``mode_runs`` bills the kept requests in each mode, and ``diagnose_all`` turns the calls
in the order of time into the findings about their clients.

``count_entry`` and ``name_pieces`` take the data of a running proxy instead: every entry of its ledger has the usage
and the cost of an exchange, and the kind and the loss of its break if the proxy diagnoses breaks. The sessions of the
last day also name the pieces. Facts that a proxy of another version does not send stay unknown.
"""

import math
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import groupby
from typing import cast

import msgspec
import orjson
from msgspec import structs

from proxy.kit.lru import Bounded, LastUsed
from proxy.kit.modes import Mode
from proxy.kit.secrets import without_keys
from proxy.kit.value import dataclass, digest, field, replace
from proxy.lab import Step, TraceError, chat_body
from proxy.lab.doctor.records import CutSizes, LineSigns, LoggedCall, MissingPart
from proxy.lab.replay import Ours, Setting, Total
from proxy.models import Transport
from proxy.models.deployments import choose_profile, provider_of
from proxy.planner.diagnose import diagnose
from proxy.planner.record import (
    SYSTEM,
    TURN,
    Break,
    BreakKind,
    PromptPiece,
    PromptRecord,
    is_continuation,
    spread,
    wire_record,
)
from proxy.planner.shadow import Deviation
from proxy.prompts import volatile_in
from proxy.protocol.prices import Price, PriceMap, input_cost
from proxy.protocol.providers import PROFILES, CacheProfile, Family, fitted
from proxy.protocol.recognition import MessageKind, PieceKind, Recogniser, recognise_text
from proxy.protocol.request.tokens import Encode
from proxy.protocol.response.outcome import UNTOLD
from proxy.protocol.response.usage import BillSum, Usage
from proxy.protocol.wire.json_body import utf8

_REMEMBERED = 4_096


@dataclass(frozen=True, slots=True)
class ModelRules:
    """``price`` is None if no price is known. Its prices of cache reads and writes are those of the price map."""

    profile: CacheProfile
    price: Price | None


class CacheRules:
    """``given`` is the profile that the user has named. None: each model has its own profile."""

    def __init__(self, prices: PriceMap, given: CacheProfile | None = None) -> None:
        self._prices, self._given = prices, given
        self.of = lru_cache(_REMEMBERED)(self._chosen)

    def _chosen(self, model: str, provider: str, named: str = "") -> ModelRules:
        """The rules for a model. ``provider`` is LiteLLM's name of the provider, and ``named`` is the name of the cache
        rules. Both are empty if the log does not tell them."""
        owner, bare = provider_of(model, provider)
        price = self._prices.price(f"{owner}/{bare}" if owner else model, model, bare)
        given = self._given or PROFILES.get(named)
        profile = given or choose_profile(Transport.LITELLM, owner, bare, "")
        if profile.family is Family.NONE and given is None:
            # A log does not tell which provider's server has answered: the provider that the name suggests is taken.
            profile = choose_profile(Transport.EMBEDDED, owner, bare, "")
        return ModelRules(fitted(profile, bare), price)


MODES = (Mode.PASSTHROUGH, Mode.MARK, Mode.TIER)

Runs = Mapping[Mode, Sequence[tuple[Total, ModelRules]]]
"""The bills by mode. Each model has its own cache and its own planner."""


def mode_runs(calls: Sequence[LoggedCall], rules: CacheRules, setting: Setting) -> Runs:
    """Run the calls in each mode. All of them have bodies."""
    found: dict[Mode, list[tuple[Total, ModelRules]]] = {mode: [] for mode in MODES}
    ordered = sorted(calls, key=lambda call: (call.model, call.provider, call.at or 0.0))
    for (model, provider), some in groupby(ordered, key=lambda call: (call.model, call.provider)):
        held = rules.of(model, provider)
        steps = [Step(call.at or 0.0, call.session, call.body or b"") for call in some]
        for mode, runs in found.items():
            ours = Ours(replace(setting, profile=held.profile, mode=mode))
            for step in steps:
                ours.send(step, ours.assembled(step))
            runs.append((ours.total, held))
    return found


_CULPRITS = 5_000
_MODELS = 100
# A longer pause counts as the gap between two logs.
_LONGEST_PAUSE_S = 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class Culprit:
    """The key by which breaks are added up. ``sign`` is the evident kind of a line, empty if the kind is not known."""

    kind: str
    piece: str
    piece_kind: str
    line: int
    sign: str
    is_waste: bool


@dataclass(slots=True)
class Loss:
    """The cost of one culprit so far, in requests, tokens and USD."""

    breaks: int = 0
    lost: int = 0
    usd: float = 0.0


@dataclass(slots=True)
class DiagnosedClient:
    """One client.

    ``bodies`` are the calls whose requests are kept for a replay, and ``size`` is the number of their bytes. ``chats``
    counts all calls that ask for a chat completion. ``told`` counts the calls with a usage, and ``unpriced`` the calls
    to a model of an unknown price. ``usd`` is the cost of the prompts whose usage is known. ``largest`` is the sum of
    the largest prompts of all sessions. ``agreed`` of ``compared`` breaks have the cause that the provider itself has
    named. ``span_s`` are the seconds that the log covers, and ``last`` is the time of the last call. ``keys`` are the
    fields by which the providers of these calls keep a conversation on one machine, empty for a provider that has no
    such field. ``notes`` are sentences about unknown facts, besides the gaps. ``modes_untold`` says why nothing is
    replayed, if the reason is not that nothing was kept.
    """

    bodies: list[LoggedCall] = field(default_factory=list)
    size: int = 0
    chats: int = 0
    gaps: Counter[MissingPart] = field(default_factory=Counter)
    calls: int = 0
    told: int = 0
    sessions: int = 0
    unpriced: int = 0
    models: Counter[str] = field(default_factory=Counter)
    usage: BillSum = field(default_factory=BillSum)
    usd: float = 0.0
    largest: int = 0
    compared: int = 0
    agreed: int = 0
    span_s: float = 0.0
    last: float | None = None
    losses: dict[Culprit, Loss] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    modes_untold: str = ""

    def count(self, model: str, at: float | None, usage: Usage | None, usd: float | None) -> None:
        """Count one call, in the order of time. ``usd`` is the cost of its prompt, None if the model's price is not
        known."""
        self.calls += 1
        if model in self.models or len(self.models) < _MODELS:
            self.models[model] += 1
        if at is not None:
            pause_s = 0.0 if self.last is None else at - self.last
            self.span_s += pause_s if pause_s < _LONGEST_PAUSE_S else 0.0
            self.last = at
        self.unpriced += usd is None
        if usage is not None:
            self.told += 1
            self.usage.add(usage)
            self.usd += usd or 0.0

    def lose(self, broken: Break, sign: str = "", cause: str = UNTOLD) -> None:
        """Count a break. ``cause`` is the provider's name for its cause."""
        piece = _name(broken.culprit)
        culprit = Culprit(str(broken.kind), piece, broken.culprit_kind, broken.line, sign, is_waste=broken.is_waste)
        if culprit not in self.losses and len(self.losses) >= _CULPRITS:
            culprit = replace(culprit, piece="", line=0, sign="")
        loss = self.losses.setdefault(culprit, Loss())
        loss.breaks += 1
        loss.lost += broken.lost
        loss.usd += broken.usd
        if cause != UNTOLD and broken.expected_cause:
            self.compared += 1
            self.agreed += cause == broken.expected_cause


UNTOLD_CULPRIT = "prompt"
"""The culprit of a break that the log does not explain; its kind is ``BreakKind.CHANGED``."""

# Limits of the memory. A session keeps more records than it has sub-agents that take turns, and fewer where they are
# large: a system text may have many lines.
_RECORDS = 64
_SESSION_BYTES = 1 << 20
_SESSIONS_BYTES = 100 << 20
_CUT_TEXTS = 64
_CUT_BYTES = 200
# A conversation that loses this share at once was cut, summarised, or begun anew.
_SHRUNK = 0.6


@dataclass(slots=True)
class _Session:
    """The memory of one session: its last records, its largest prompt, and the parts of its texts."""

    records: list[PromptRecord] = field(default_factory=list)
    largest: int = 0
    cuts: LastUsed[bytes, Sequence[PromptPiece]] = field(default_factory=lambda: LastUsed(_CUT_TEXTS))


def diagnose_all(calls: Iterable[LoggedCall], clients: Mapping[str, DiagnosedClient], rules: CacheRules) -> None:
    """Add the findings about the calls to their clients. The calls come in the order of time."""
    sessions: Bounded[tuple[str, str], _Session] = Bounded(
        _SESSIONS_BYTES,
        lambda session: (
            1_000
            + sum(record.about_bytes for record in session.records)
            + _CUT_BYTES * sum(map(len, session.cuts.values()))
        ),
    )
    for call in calls:
        client, key = clients[call.client], (call.client, call.session)
        client.sessions += key not in sessions
        session = sessions.get(key) or _Session()
        held, usage = rules.of(call.model, call.provider, call.profile), call.usage
        cost = 0.0 if usage is None or held.price is None else input_cost(usage, held.price)
        client.count(call.model, call.at, usage, None if held.price is None else cost)
        client.keys.add(held.profile.routing.name if held.profile.routing is not None else "")
        grown = max(0, usage.prompt - session.largest) if usage is not None else 0
        client.largest += grown
        session.largest += grown
        broken = _break(session, call, held)
        if broken is not None and (broken.lost or broken.culprit):
            client.lose(broken, _sign(broken, call), call.cause)
        sessions.put(key, session)


def _break(session: _Session, call: LoggedCall, held: ModelRules) -> Break | None:
    """The break of a call. The session then remembers the call."""
    profile, usage = held.profile, call.usage
    record = call.record
    if record is None:
        if usage is None:
            return None
        record = _untold(session, call, usage)
    elif call.continues and session.records:
        record = record.continuing(session.records[-1])
    for piece in record.pieces() if call.cuts else ():
        if (cuts := call.cuts.get(piece.digest)) is not None:
            # The tokens of the text are spread over its parts by their lengths.
            sizes = zip(cuts, spread(piece.tokens, (size for *_, size in cuts)), strict=True)
            parts = [PromptPiece(key, kind, digest, tokens, piece.place) for (key, kind, digest, _), tokens in sizes]
            session.cuts.put(piece.digest, parts)
    broken = diagnose(session.records, record, usage, profile, held.price, session.cuts)
    if call.record is None and broken is not None and broken.kind in tuple(Deviation):
        # The log shows no difference, whatever the cause was.
        is_over = broken.kind == Deviation.EXPIRED
        broken = broken if is_over else replace(broken, kind=BreakKind.CHANGED, culprit=UNTOLD_CULPRIT, is_waste=True)
    session.records.append(record if call.record is None else record.answered(usage, profile))
    most = min(_RECORDS, 1 + _SESSION_BYTES // record.about_bytes)
    del session.records[: -1 if call.record is None else -most]
    return broken


def _untold(session: _Session, call: LoggedCall, usage: Usage) -> PromptRecord:
    """A prompt that the log does not hold, described as the prompt before it plus the tokens by which it is longer. If
    none of the earlier prompt was read, something differs. An entry that was written for an hour keeps that TTL while
    it is read."""
    before = session.records[-1] if session.records else PromptRecord()
    if call.is_compacted or usage.prompt < _SHRUNK * before.total:
        # Content that a summary has replaced could not have been read again.
        session.records.clear()
        before = PromptRecord(long=before.long)
    grown = usage.prompt - before.total
    piece = PromptPiece("", TURN, digest(before.count.to_bytes(8)), grown)
    long = usage.read + usage.write_1h if usage.write_1h else min(before.long, usage.read)
    stored = usage.read + usage.write if usage.writes_told else usage.prompt
    head = PromptRecord(call.at or 0.0, call.model, stored=stored, long=long)
    return head.holding([piece] if grown > 0 else [], before, before.count)


def _sign(broken: Break, call: LoggedCall) -> str:
    """The sign of the line that differs; empty if the line has no sign."""
    record = call.record
    if record is None or broken.culprit_kind != SYSTEM:
        return ""
    pieces = zip(record.each(), record.places, record.named(), strict=True)
    there = (digest for digest, place, (kind, _) in pieces if place == broken.place and kind == SYSTEM)
    signs = (call.signs.get(digest, {}).get(broken.line, "") for digest in there)
    return next(filter(None, signs), "")


class Entries:
    """All calls. ``add`` and reading may raise OSError if the disk is full."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the entries
        self._order: list[tuple[float, int, int]] = []
        self._end = 0

    def add(self, call: LoggedCall) -> None:
        """Keep one more call. Calls without a time keep the order in which they came, in front of calls with a time."""
        written = msgspec.msgpack.encode(call)
        self._file.write(written)
        self._order.append((-math.inf if call.at is None else call.at, self._end, len(written)))
        self._end += len(written)

    def __iter__(self) -> Iterator[LoggedCall]:
        """The calls in the order of time. Calls with equal times keep the order in which they came."""
        for _, start, length in sorted(self._order):
            self._file.seek(start)
            yield msgspec.msgpack.decode(self._file.read(length), type=LoggedCall)

    def close(self) -> None:
        """Remove the file."""
        self._file.close()


_KEPT_BYTES = 32 << 20
_MOST_CLIENTS = 1_000
OTHERS = "(other clients)"
_KNOWN_BYTES = 32 << 20
_PART_BYTES = 300
_CLOCK = "time"
_MOST_NAME_CHARS = 120


class CallIntake:
    """Takes calls in the order in which they are read. ``count`` counts tokens; ``recognisers`` know clients' texts."""

    def __init__(self, entries: Entries, count: Encode, recognisers: Sequence[Recogniser] = ()) -> None:
        self.clients: dict[str, DiagnosedClient] = {}
        self._entries, self._count, self._recognisers = entries, count, recognisers
        self._left = _KEPT_BYTES
        # The signs and the parts of the texts that were seen before.
        self._known: Bounded[bytes, tuple[LineSigns, CutSizes]] = Bounded(
            _KNOWN_BYTES, lambda known: _PART_BYTES * (1 + sum(map(len, known)))
        )

    def take(self, call: LoggedCall) -> None:
        """Keep a call. Raises OSError if the disk is full."""
        # Some programs name the sender by its key, and a key may stand in any other field by mistake.
        name, session, model, provider = (
            _name(text)[:_MOST_NAME_CHARS] for text in (call.client, call.session, call.model, call.provider)
        )
        if name not in self.clients and len(self.clients) >= _MOST_CLIENTS:
            name = OTHERS
        client = self.clients.setdefault(name, DiagnosedClient())
        client.chats += call.is_chat
        client.gaps.update(call.gaps)
        taken = structs.replace(call, client=name, session=session, model=model, provider=provider, body=None)
        self._entries.add(taken if call.body is None else self._digested(client, call.body, taken))

    def _digested(self, client: DiagnosedClient, raw: bytes, call: LoggedCall) -> LoggedCall:
        """The call with its prompt as digests; without the prompt if the body is nested more deeply than any prompt."""
        signs: dict[bytes, LineSigns] = {}
        cuts: dict[bytes, CutSizes] = {}

        def look(piece: PromptPiece, text: str) -> None:
            known = self._known.get(piece.digest)
            if known is None:
                is_system = piece.kind == SYSTEM
                known = (_signs(text), ()) if is_system else ({}, _cuts(self._recognisers, piece.key, text))
                self._known[piece.digest] = known
            self._known.used(piece.digest)
            own_signs, own_cuts = known
            if own_signs:
                signs[piece.digest] = own_signs
            if own_cuts:
                cuts[piece.digest] = own_cuts

        try:
            body = orjson.loads(raw)
            record = wire_record(body, self._count, at=call.at or 0.0, route=call.provider, on_text=look)
        except (ValueError, RecursionError):
            return call
        # The bodies of chat requests are kept while there is room. No client takes more than half of the room that is
        # left, so that the others have some room, too.
        if call.is_chat and MissingPart.CUT not in call.gaps and client.size + len(raw) <= self._left // 2:
            with suppress(TraceError):
                chat_body(raw, "")
                client.bodies.append(structs.replace(call, body=raw))
                client.size += len(raw)
                self._left -= len(raw)
        return structs.replace(call, record=record, signs=signs, cuts=cuts, continues=is_continuation(body))


def _name(text: str) -> str:
    """A name that a log gives, on one line, and without a key."""
    return " ".join(without_keys(text, keeps_runs=True).split())


def _cuts(recognisers: Sequence[Recogniser], role: str, text: str) -> CutSizes:
    """The parts of a message that holds context, without its opening. Any other message has no parts."""
    found = recognise_text(recognisers, role, text)
    if found is None or found.form not in (MessageKind.CONTEXT, MessageKind.CANDIDATE):
        return ()
    parts = ((c, utf8(text[c.start : c.end])) for c in found.cuts if c.kind is not PieceKind.OPENING)
    return [(c.key, str(c.kind), digest(part), c.end - c.start) for c, part in parts]


def _signs(text: str) -> LineSigns:
    """The first sign of each line of a text. A line with a time of day is a clock, whatever else it holds."""
    found: dict[int, str] = {}
    for sign in volatile_in(text):
        if sign.kind == _CLOCK or sign.line not in found:
            found[sign.line] = sign.kind
    # If a text of one line differs, it differs as a whole.
    return {0: found[1], **found} if found and "\n" not in text else found


Fields = Mapping[str, object]

NO_PIECES = "a proxy's ledger names kinds of breaks: pieces are told of the sessions of the last day alone"
NO_BREAKS = "this proxy's ledger tells no breaks: losses are not known"
NO_MODES = "what the modes of a running proxy have saved is told by: stratiform spend --url"
_RIGHTFUL = (BreakKind.COMPACTED, BreakKind.MODEL_SWITCHED, BreakKind.BELOW_MINIMUM)
_LARGEST = 1e12


def count_entry(clients: dict[str, DiagnosedClient], entry: Fields) -> None:
    """Count one exchange of the ledger. Exchanges come in the order of time. A client is a key, or the team if the
    request had no key."""
    client = clients.setdefault(
        _text(entry, "key_id") or _text(entry, "team") or "(no key)",
        DiagnosedClient(modes_untold=NO_MODES, notes=[NO_BREAKS]),
    )
    read, short, long, plain, output = (
        int(max(0.0, _number(entry, f"{name}_tokens"))) for name in ("read", "write_5m", "write_1h", "plain", "output")
    )
    usage = Usage(read + short + long + plain, output, read, short, long)
    client.count(_text(entry, "model"), _number(entry, "at"), usage, _number(entry, "cost_usd"))
    if "break_kind" in entry:
        client.notes = [NO_PIECES]
    if kind := _text(entry, "break_kind"):
        client.lose(_told_break(kind, _number(entry, "break_usd")))


def name_pieces(clients: Mapping[str, DiagnosedClient], session: Fields) -> None:
    """Name the pieces of the breaks of a session, by its breakdown. The ledger knows these breaks already."""
    client = clients.get(_text(session, "key") or _text(session, "team") or "(no key)", DiagnosedClient())
    told = session.get("diagnosis")
    for entry in filter(lambda each: isinstance(each, dict), told if isinstance(told, list) else ()):
        kind, (piece_kind, _, piece) = _text(entry, "kind"), _text(entry, "culprit").partition(":")
        whole = Culprit(kind, "", "", 0, "", _told_break(kind).is_waste)
        loss = client.losses.get(whole)
        if loss is None or not piece:
            continue
        named = Break(
            cast("BreakKind", kind),
            piece,
            piece_kind,
            line=int(_number(entry, "line")),
            lost=int(_number(entry, "lost")),
            usd=min(_number(entry, "usd"), loss.usd),
            is_waste=entry.get("is_waste") is True,
        )
        client.lose(named)
        loss.breaks, loss.usd = loss.breaks - 1, loss.usd - named.usd
        if not loss.breaks:
            del client.losses[whole]


def _told_break(kind: str, usd: float = 0.0) -> Break:
    return Break(cast("BreakKind", kind), usd=usd, is_waste=kind in tuple(BreakKind) and kind not in _RIGHTFUL)


def _text(fields: Fields, name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _number(fields: Fields, name: str) -> float:
    value = fields.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST:
        return float(value)
    return 0.0
