"""Examines log files and makes a ``Report`` of them.

``Intake`` takes the calls as they are read. It turns their prompts into digests and sizes, and keeps the bodies of some
of them for a replay. ``Entries`` keeps the calls in the order of time, for the diagnosis of the breaks.

``count_entry`` and ``name_pieces`` take the data of a running proxy instead: every entry of its ledger has the usage
and the cost of an exchange, and the kind and the loss of its break if the proxy diagnoses breaks. The sessions of the
last day also name the pieces. Facts that a proxy of another version does not send stay unknown.
"""

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import msgspec
import orjson
from msgspec import structs

from proxy.core.diagnosis.record import SYSTEM, Break, BreakKind, PromptPiece, is_continuation, wire_record
from proxy.core.digest import digest
from proxy.core.lru import Bounded
from proxy.core.prompts.steadiness import volatile_in
from proxy.core.recognition import MessageKind, PieceKind, Recogniser, recognise_text
from proxy.core.request.tokens import Encode
from proxy.core.response.usage import Usage
from proxy.core.wire.json_body import printable, utf8
from proxy.doctor.findings import Client, Culprit, Rules, diagnose_all, mode_runs
from proxy.doctor.reader import read_calls
from proxy.doctor.records import Call, CutSizes, Gap, LineSigns, Problem
from proxy.doctor.report import Report, report_of
from proxy.replay.runner import Setting
from proxy.replay.trace import TraceError, chat_body


class Entries:
    """All calls. ``add`` and reading may raise OSError if the disk is full."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the entries
        self._order: list[tuple[float, int, int]] = []
        self._end = 0

    def add(self, call: Call) -> None:
        """Keep one more call. Calls without a time keep the order in which they came, in front of calls with a time."""
        written = msgspec.msgpack.encode(call)
        self._file.write(written)
        self._order.append((-math.inf if call.at is None else call.at, self._end, len(written)))
        self._end += len(written)

    def __iter__(self) -> Iterator[Call]:
        """The calls in the order of time. Calls with equal times keep the order in which they came."""
        for _, start, length in sorted(self._order):
            self._file.seek(start)
            yield msgspec.msgpack.decode(self._file.read(length), type=Call)

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


class Intake:
    """Takes calls in the order in which they are read. ``count`` counts tokens; ``recognisers`` know clients' texts."""

    def __init__(self, entries: Entries, count: Encode, recognisers: Sequence[Recogniser] = ()) -> None:
        self.clients: dict[str, Client] = {}
        self._entries, self._count, self._recognisers = entries, count, recognisers
        self._left = _KEPT_BYTES
        # The signs and the parts of the texts that were seen before.
        self._known: Bounded[bytes, tuple[LineSigns, CutSizes]] = Bounded(
            _KNOWN_BYTES, lambda known: _PART_BYTES * (1 + sum(map(len, known)))
        )

    def take(self, call: Call) -> None:
        """Keep a call. Raises OSError if the disk is full."""
        name = call.client[:_MOST_NAME_CHARS]
        if name not in self.clients and len(self.clients) >= _MOST_CLIENTS:
            name = OTHERS
        client = self.clients.setdefault(name, Client())
        client.chats += call.is_chat
        client.gaps.update(call.gaps)
        session, model, provider = (text[:_MOST_NAME_CHARS] for text in (call.session, call.model, call.provider))
        taken = structs.replace(call, client=name, session=session, model=model, provider=provider, body=None)
        self._entries.add(taken if call.body is None else self._digested(client, call.body, taken))

    def _digested(self, client: Client, raw: bytes, call: Call) -> Call:
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
        self._keep(client, structs.replace(call, body=raw))
        return structs.replace(call, record=record, signs=signs, cuts=cuts, continues=is_continuation(body))

    def _keep(self, client: Client, call: Call) -> None:
        """Keep the body of a chat request while there is room. No client takes more than half of the room that is left,
        so that the others have some room, too."""
        assert call.body is not None
        size = len(call.body)
        if not call.is_chat or Gap.CUT in call.gaps or client.size + size > self._left // 2:
            return
        with suppress(TraceError):
            chat_body(call.body, "")
            client.bodies.append(call)
            client.size += size
            self._left -= size


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


_SUFFIXES = (".jsonl", ".ndjson", ".json", ".har", ".csv", ".log")
_COMPRESSED = (".xz", ".gz", ".bz2")
_LOGS = tuple(suffix + packed for suffix in _SUFFIXES for packed in ("", *_COMPRESSED))
_MOST_PROBLEMS = 1_000
NONE_READ = "holds no call of a model that can be read"

Progress = Callable[[Path, int, int], None]
"""Called with a file, how many of its bytes were read, and how many bytes it has."""


def examine(paths: Sequence[Path], rules: Rules, setting: Setting, on_progress: Progress) -> Report:
    """Read the files and report. ``rules`` are the rules and prices of each model; ``setting`` says how requests are
    replayed. Raises OSError if the disk is full."""
    problems: dict[tuple[str, str], Problem] = {}
    files = set[Path]()
    with closing(Entries()) as entries:
        intake = Intake(entries, setting.encode, setting.recognisers)
        for path, found in _read(paths, on_progress):
            files.add(path)
            if isinstance(found, Call):
                intake.take(found)
                continue
            # If many records of a file are left out for the same reason, they count as one problem.
            file = printable(str(path))
            known = problems.get((file, found.text))
            if known is not None:
                problems[file, known.text] = replace(known, count=known.count + 1)
            elif len(problems) < _MOST_PROBLEMS:
                problems[file, found.text] = replace(found, file=file)
        diagnose_all(entries, intake.clients, rules)
    runs = {name: mode_runs(each.bodies, rules, setting) for name, each in intake.clients.items() if each.bodies}
    return report_of(intake.clients, runs, list(problems.values()), sum(not path.is_dir() for path in files))


def _read(paths: Sequence[Path], on_progress: Progress) -> Iterator[tuple[Path, Call | Problem]]:
    """Everything in the named files, and in the logs of the named folders, by name."""
    for named in dict.fromkeys(paths):
        files = [named]
        if named.is_dir():
            files = sorted(file for file in named.rglob("*") if file.name.endswith(_LOGS) and file.is_file())
            yield named, Problem(line=0, text=f"is a directory: the {len(files):,} logs in it are read")
        for path in files:
            calls = read_calls(path, partial(on_progress, path))
            # A file without a call is a problem of its own.
            yield path, next(calls, Problem(line=0, text=NONE_READ))
            yield from ((path, found) for found in calls)


Fields = Mapping[str, object]

NO_PIECES = "a proxy's ledger names kinds of breaks: pieces are told of the sessions of the last day alone"
NO_BREAKS = "this proxy's ledger tells no breaks: losses are not known"
NO_MODES = "what the modes of a running proxy have saved is told by: stratiform spend --url"
_RIGHTFUL = (BreakKind.COMPACTED, BreakKind.MODEL_SWITCHED, BreakKind.BELOW_MINIMUM)
_LARGEST = 1e12


def count_entry(clients: dict[str, Client], entry: Fields) -> None:
    """Count one exchange of the ledger. Exchanges come in the order of time. A client is a key, or the team if the
    request had no key."""
    client = clients.setdefault(
        _text(entry, "key_id") or _text(entry, "team") or "(no key)",
        Client(modes_untold=NO_MODES, notes=[NO_BREAKS]),
    )
    client.count(_text(entry, "model"), _number(entry, "at"), _usage(entry), _number(entry, "cost_usd"))
    if "break_kind" in entry:
        client.notes = [NO_PIECES]
    if kind := _text(entry, "break_kind"):
        client.lose(_break(kind, _number(entry, "break_usd")))


def name_pieces(clients: Mapping[str, Client], session: Fields) -> None:
    """Name the pieces of the breaks of a session, by its breakdown. The ledger knows these breaks already."""
    client = clients.get(_text(session, "key") or _text(session, "team") or "(no key)", Client())
    told = session.get("diagnosis")
    for entry in filter(lambda each: isinstance(each, dict), told if isinstance(told, list) else ()):
        kind, (piece_kind, _, piece) = _text(entry, "kind"), _text(entry, "culprit").partition(":")
        whole = Culprit(kind, "", "", 0, "", _break(kind, 0.0).is_waste)
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


def _break(kind: str, usd: float) -> Break:
    return Break(cast("BreakKind", kind), usd=usd, is_waste=kind in tuple(BreakKind) and kind not in _RIGHTFUL)


def _usage(entry: Fields) -> Usage:
    read, short, long, plain, output = (
        int(max(0.0, _number(entry, f"{name}_tokens"))) for name in ("read", "write_5m", "write_1h", "plain", "output")
    )
    return Usage(read + short + long + plain, output, read, short, long)


def _text(fields: Fields, name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _number(fields: Fields, name: str) -> float:
    value = fields.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST:
        return float(value)
    return 0.0
