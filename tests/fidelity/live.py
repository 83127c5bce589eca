"""check_live(original, sent): is what was assembled of panels and a described history what the client asked for?

Independent of the product, like ``checker.check``. That one judges what the planner makes of an assembled request; this
one judges the assembly itself: the messages with the section ``stratiform`` on one side, the messages on the other.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from . import live_words as words
from .fields import bare_tool, check_fields
from .live_frozen import KIND_PREFIX, Chunk, Minimums, check_chunks, frozen_text, minimums_of
from .live_history import Expected, Message, calls_of, expected, is_empty, role_of
from .live_pieces import Piece, Sort, piece_before
from .view import MARKER_KEYS, SYSTEM_ROLES, canonical, same
from .violations import Report, Rule, Violation, difference

Body = dict[str, Any]
_LEAST_EXCHANGES = 2
_CONTEXT_FIELDS = ("files", "symbols", "legend", "tree", "urls", "review")


@dataclass(frozen=True, slots=True)
class LiveTerms:
    """What the checker has to know beside the bodies.

    ``now_s`` is when the request arrived. ``is_chronological``: panels may stand within the conversation; else all of
    them stand in front of it. ``detach`` are the operator's minimums, None where only what a client asks for is frozen;
    ``tokens`` counts a message by them. ``allows_compaction`` and ``repeats`` say whether the operator has a
    conversation compacted, and the system text repeated.
    """

    now_s: float
    is_chronological: bool = True
    detach: Minimums | None = None
    tokens: Callable[[Message], int] | None = None
    allows_compaction: bool = False
    repeats: bool = False


def check_live(original: Body, sent: Body, terms: LiveTerms) -> list[Violation]:
    """All rules that ``sent`` breaks as the assembled form of ``original``; empty if it is faithful."""
    return _Check(original, sent, terms).run()


@dataclass
class LiveSession:
    """``check_live`` for the requests of one session in turn: the time above a panel must be that of the request which
    brought its content, and the time of a question that of the request which first ended in it.

    The requests must all count, and be known to one worker."""

    seen: dict[str, tuple[str, float]] = field(default_factory=dict)
    asked: dict[str, float] = field(default_factory=dict)

    def check(self, original: Body, sent: Body, terms: LiveTerms) -> list[Violation]:
        """The violations of the next request."""
        check = _Check(original, sent, terms)
        check.run()
        now: dict[str, tuple[str, float]] = {}
        for panel_id, (text, line, path) in check.shown.items():
            before = self.seen.get(panel_id)
            since = before[1] if before is not None and before[0] == text else terms.now_s
            now[panel_id] = (text, since)
            if line != words.stamp_line(since):
                check.report.add(Rule.STAMP, path, "not the time of the request that brought this content")
        # A panel without content keeps its time, too, though nobody reads it.
        self.seen = now | {
            panel["id"]: (words.panel_text(panel["id"], panel.get("header") or "", ""), terms.now_s)
            for panel in _section(original).get("panels") or ()
            if panel["id"] not in now
        }
        if check.question is not None:
            key, line, path = check.question
            since = self.asked.setdefault(key, terms.now_s)
            if line != words.DATETIME + words.iso(since):
                check.report.add(Rule.DATETIME, path, "not the time at which this question was first sent")
        return check.report.violations


def _section(body: Body) -> Mapping[str, Any]:
    found = body.get("stratiform")
    return found if isinstance(found, dict) else {}


def _bare(message: Message) -> Message:
    """A message without cache markers, and its one part of text as a string."""
    if not isinstance(message, dict):
        return message
    bare = {name: value for name, value in message.items() if name not in MARKER_KEYS}
    content = bare.get("content")
    if isinstance(content, list):
        parts = [
            {name: value for name, value in part.items() if name not in MARKER_KEYS} if isinstance(part, dict) else part
            for part in content
        ]
        only = parts[0] if len(parts) == 1 else None
        is_text = isinstance(only, dict) and only.keys() == {"type", "text"} and only["type"] == "text"
        bare["content"] = only["text"] if is_text and only is not None else parts
    return bare


class _Check:
    """One request. ``shown`` has, for each of the client's panels that was found, what it shows, the line above it and
    where it stands; ``question`` the same of the time in front of the last message, if this is a user's."""

    def __init__(self, original: Body, sent: Body, terms: LiveTerms) -> None:
        self.report = Report()
        self.shown: dict[str, tuple[str, str, str]] = {}
        self.question: tuple[str, str, str] | None = None
        self._original, self._sent_body, self._terms = original, sent, terms
        self._section = _section(original)
        self._has_context = any(self._section.get(name) for name in _CONTEXT_FIELDS)
        messages = [_bare(message) for message in original["messages"]]
        self._leading = next(
            (at for at, message in enumerate(messages) if role_of(message) not in SYSTEM_ROLES), len(messages)
        )
        self._systems, self._turns = messages[: self._leading], messages[self._leading :]
        metas = {meta["index"] - self._leading: meta for meta in self._section.get("messages_meta") or ()}
        self._removed = [
            turn
            for at, turn in enumerate(self._turns)
            if metas.get(at, {}).get("status") in ("deleted", "detached") or is_empty(turn)
        ]
        has_history = any(isinstance(self._section.get(name), list) for name in ("panels", "messages_meta"))
        plain = [Expected(turn, Rule.ALTERED, at) for at, turn in enumerate(self._turns)]
        self._expected = self._with_images(expected(self._turns, metas) if has_history else plain)
        self._detach = minimums_of(self._section.get("detach"), terms.detach) if has_history else None
        self._messages = [_bare(message) for message in sent["messages"]]
        self._pieces: list[Piece] = []
        self._uncovered: list[Expected] = []
        self._start = 0
        self._may_compact = terms.allows_compaction and self._section.get("compaction") is True

    def run(self) -> list[Violation]:
        """All clauses."""
        check_fields(self._original, self._sent_body, self.report, ())
        self._check_systems()
        self._align()
        self._check_tools()
        chunks = self._check_panels()
        self._check_words()
        self._check_places()
        self._check_datetimes()
        self._check_beginning(chunks)
        return self.report.violations

    def _with_images(self, found: list[Expected]) -> list[Expected]:
        """With the section's images behind the content of the last user message."""
        urls = self._section.get("images") or ()
        at = max((at for at, each in enumerate(found) if role_of(each.message) == "user"), default=None)
        if not urls or at is None:
            return found
        message = found[at].message
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        changed = Expected({**message, "content": [*parts, *images]}, found[at].rule, found[at].origin)
        return [*found[:at], changed, *found[at + 1 :]]

    def _check_tools(self) -> None:
        """The client's tools; the tool of the panels may be declared in front of them, where panels are shown."""
        before, after = self._original.get("tools"), self._sent_body.get("tools")
        if self._of(Sort.PANEL) and isinstance(after, list) and after and same(bare_tool(after[0]), words.DECLARATION):
            after = after[1:] or (None if before is None else [])
        if isinstance(before, list) and isinstance(after, list):
            before, after = [bare_tool(tool) for tool in before], [bare_tool(tool) for tool in after]
        if not same(before, after):
            self.report.add(Rule.TOOLS, "tools", "added, dropped or changed")

    def _check_systems(self) -> None:
        """The leading system messages stay; the last may have context of the client's behind it."""
        count = self._leading
        made = 0
        if not count and self._has_context and self._messages and role_of(self._messages[0]) in SYSTEM_ROLES:
            made = 1
        for at, system in enumerate(self._systems):
            found = self._messages[at] if at < len(self._messages) else None
            if same(system, found) or (at == count - 1 and self._has_context and _continues(system, found)):
                continue
            self.report.add(Rule.ALTERED, f"messages[{at}]", "a leading system message is not what the client sent")
        self._start = count + made

    def _align(self) -> None:
        """Whose each message is, from the end: what the client's conversation has at this place is the client's."""
        at, left = len(self._messages), len(self._expected)
        pieces: list[Piece] = []
        while at > self._start:
            ours = piece_before(self._messages, at, has_context=self._has_context)
            if self._is_clients(at, left, ours):
                at, left = at - 1, left - 1
                pieces.append(Piece(Sort.CLIENT, at, at + 1, left))
                continue
            if ours is not None and ours.start >= self._start:
                pieces.append(ours)
                at = ours.start
                continue
            left = self._misplaced(at - 1, left, pieces)
            at -= 1
        self._pieces = pieces[::-1]
        self._uncovered = [*self._expected[:left], *self._uncovered]

    def _is_clients(self, at: int, left: int, ours: Piece | None) -> bool:
        """Whether the message in front of ``at`` is the expected one. The short answer to a message of context may be
        the same as one of the client's."""
        if not left or not same(self._messages[at - 1], self._expected[left - 1].message):
            return False
        if ours is None or ours.sort is not Sort.CONTEXT:
            return True
        return left > 1 and same(self._messages[at - 2], self._expected[left - 2].message)

    def _misplaced(self, at: int, left: int, pieces: list[Piece]) -> int:
        """Notes a message that is not the expected one. What is left of the expected messages in front of it."""
        message = self._messages[at]
        path = f"messages[{at}]"
        if any(same(message, removed) for removed in self._removed):
            self.report.add(Rule.REMOVED, path, "it was deleted, detached, or says nothing")
            pieces.append(Piece(Sort.UNKNOWN, at, at + 1))
            return left
        there = next((k for k in range(left - 1, -1, -1) if same(message, self._expected[k].message)), None)
        if there is not None and role_of(message) in SYSTEM_ROLES and (self._may_compact or self._detach is not None):
            # What is frozen or summarized leaves system messages where they are.
            self._uncovered = [*self._expected[there + 1 : left], *self._uncovered]
            pieces.append(Piece(Sort.CLIENT, at, at + 1, there))
            return there
        if there is not None:
            for lost in self._expected[there + 1 : left]:
                self._lose(lost, path)
            pieces.append(Piece(Sort.CLIENT, at, at + 1, there))
            return there
        if any(same(message, each.message) for each in self._expected):
            self.report.add(Rule.ORDER, path, "it stands elsewhere, or twice")
        elif left and self._alters(at, self._expected[left - 1].message):
            self.report.add(self._expected[left - 1].rule, path, "not what is to be sent here")
            pieces.append(Piece(Sort.CLIENT, at, at + 1, left - 1))
            return left - 1
        else:
            self.report.add(Rule.ADDED, path, "nobody sent it, and it is none of the documented words")
        pieces.append(Piece(Sort.UNKNOWN, at, at + 1))
        return left

    def _alters(self, at: int, wanted: Message) -> bool:
        """Whether it stands in the place of the wanted message, which does not stand in front of it."""
        is_next = at > self._start and same(self._messages[at - 1], wanted)
        return role_of(wanted) == role_of(self._messages[at]) and not is_next

    def _lose(self, lost: Expected, path: str) -> None:
        rule = Rule.LOST if lost.rule is Rule.ALTERED else lost.rule
        self.report.add(rule, path, f"the client's message {lost.origin} should stand behind it")

    def _wanted(self) -> dict[str, Mapping[str, Any]]:
        """The client's panels that are to be shown."""
        panels = self._section.get("panels") or ()
        return {panel["id"]: panel for panel in panels if panel["id"] != "chat" and panel["content"]}

    def _of(self, *sorts: Sort) -> list[Piece]:
        return [piece for piece in self._pieces if piece.sort in sorts]

    def _check_panels(self) -> list[Chunk]:
        """Each panel once, in a pair of the documented form, under its time. The panels of frozen parts."""
        wanted, chunks = self._wanted(), []
        found: Counter[str] = Counter()
        for number, piece in enumerate(self._of(Sort.PANEL)):
            call, result = self._messages[piece.start : piece.end]
            call_id = calls_of(call)[0].get("id")
            panel_id = call_id.removeprefix(words.ID_PREFIX) if isinstance(call_id, str) else ""
            line = self._stamp(piece, call, is_first=number == 0)
            text = call.get("content") if isinstance(call.get("content"), str) else ""
            form = words.call_message(words.ID_PREFIX + panel_id, words.panel_arguments(panel_id), text)
            shown = result.get("content")
            if not same(form, call) or not isinstance(shown, str):
                self.report.add(Rule.PANEL, piece.path, "the call is not of the documented form")
                continue
            if not same(result, words.result_message(words.ID_PREFIX + panel_id, shown)):
                self.report.add(Rule.PANEL, piece.path, "the result is not that of the call")
                continue
            found[panel_id] += 1
            if panel_id.startswith(KIND_PREFIX):
                chunks.append(self._chunk(panel_id, shown, piece))
            elif panel_id not in wanted:
                self.report.add(Rule.PANEL, piece.path, "there is no such panel")
            else:
                self._check_panel(wanted[panel_id], shown, line, piece)
        for panel_id in wanted:
            if found[panel_id] != 1:
                self.report.add(Rule.PANEL, "messages", f"a panel stands there {found[panel_id]} times")
        return chunks

    def _check_panel(self, panel: Mapping[str, Any], shown: str, line: str, piece: Piece) -> None:
        text = words.panel_text(panel["id"], panel.get("header") or "", panel["content"])
        if shown != text:
            self.report.add(Rule.PANEL, piece.path, difference(text, shown))
        self.shown[panel["id"]] = (text, line, piece.path)

    def _chunk(self, panel_id: str, shown: str, piece: Piece) -> Chunk:
        begin = f"======= [{panel_id}] "
        line, _, content = shown.partition("\n")
        if not line.startswith(begin) or not line.endswith(" ======="):
            self.report.add(Rule.PANEL, piece.path, "the line above a frozen part is not of the documented form")
            return Chunk(panel_id, "", content, piece.path)
        return Chunk(panel_id, line[len(begin) : -len(" =======")], content, piece.path)

    def _stamp(self, piece: Piece, call: Message, *, is_first: bool) -> str:
        """The line with the panel's time."""
        text = call.get("content")
        text = text if isinstance(text, str) else ""
        begin = f"{words.BEGINNING}\n\n"
        if is_first != text.startswith(begin):
            self.report.add(Rule.STAMP, piece.path, "the words at the beginning stand above the first panel only")
        line = text.removeprefix(begin)
        time_s = words.stamped(line)
        if time_s is None or time_s > self._terms.now_s:
            self.report.add(Rule.STAMP, piece.path, "no time, or a time that has not come yet")
        return line

    def _check_words(self) -> None:
        """The end of the panels stands behind their first run, and the repeated system text behind it."""
        order = [piece.sort for piece in self._pieces]
        run = 0
        if Sort.PANEL in order:
            first = order.index(Sort.PANEL)
            run = next((at for at in range(first, len(order)) if order[at] is not Sort.PANEL), len(order))
        ends = [at for at, sort in enumerate(order) if sort is Sort.FOOTER]
        if ends != ([run] if Sort.PANEL in order else []):
            self.report.add(
                Rule.FOOTER, "messages", "the end of the panels does not stand behind the first of them, once"
            )
        for at in ends:
            piece = self._pieces[at]
            pair = [
                words.call_message(words.FOOTER_ID, words.FOOTER_ARGUMENTS, words.FOOTER),
                words.result_message(words.FOOTER_ID, words.FOOTER_ANSWER),
            ]
            if not same(pair, self._messages[piece.start : piece.end]):
                self.report.add(Rule.FOOTER, piece.path, "not the documented words")
        self._check_repeat(order, ends)
        if not self._terms.is_chronological and Sort.PANEL in order:
            self._check_ascending(self._pieces[order.index(Sort.PANEL) : run])

    def _check_repeat(self, order: list[Sort], ends: list[int]) -> None:
        repeats = [at for at, sort in enumerate(order) if sort is Sort.REPEAT]
        texts = [_text(message) for message in self._systems]
        wanted = words.REPEAT + "\n\n".join(text for text in texts if text)
        for at in repeats:
            piece = self._pieces[at]
            if not self._terms.repeats or len(repeats) > 1 or at - 1 not in ends:
                self.report.add(Rule.FOOTER, piece.path, "the system text is repeated where it may not be")
            elif self._messages[piece.start].get("content") != wanted or not _is_plain(self._messages[piece.start]):
                self.report.add(Rule.FOOTER, piece.path, "not the system text")

    def _check_ascending(self, run: Sequence[Piece]) -> None:
        """Where all stand in front of the conversation, what changed longer ago stands further in front."""
        lines = [str(self._messages[piece.start].get("content")) for piece in run]
        times = [words.stamped(line.removeprefix(f"{words.BEGINNING}\n\n")) or 0 for line in lines]
        for piece, (one, other) in zip(run, pairwise(times), strict=False):
            if one > other:
                self.report.add(Rule.STAMP, piece.path, "it changed later than the panel behind it")

    def _check_places(self) -> None:
        """Where something of ours stands among the client's messages."""
        sorts = (Sort.PANEL, Sort.FOOTER, Sort.REPEAT, Sort.DATETIME)
        for at, piece in enumerate(self._pieces):
            if piece.sort is Sort.CONTEXT and any(each.sort is not Sort.CONTEXT for each in self._pieces[:at]):
                self.report.add(Rule.PLACE, piece.path, "context stands behind something else")
            if piece.sort not in sorts:
                continue
            front = next((each for each in reversed(self._pieces[:at]) if each.sort is Sort.CLIENT), None)
            behind = next((each for each in self._pieces[at + 1 :] if each.sort is Sort.CLIENT), None)
            self._check_place(piece, front, behind)

    def _check_place(self, piece: Piece, front: Piece | None, behind: Piece | None) -> None:
        before = self._expected[front.at] if front is not None else None
        after = self._expected[behind.at] if behind is not None else None
        roles = (role_of(before.message) if before else "", role_of(after.message) if after else "")
        if not self._terms.is_chronological and piece.sort is not Sort.DATETIME and before is not None:
            self.report.add(Rule.PLACE, piece.path, "it stands within the conversation")
        if roles[1] in ("tool", "function"):
            self.report.add(Rule.TOOL_PAIR, piece.path, "it parts a call from its result")
        if roles == ("user", "assistant") and not self._parted(before, after):
            self.report.add(Rule.EXCHANGE, piece.path, "it stands between a user's turn and its answer")
        last_user = max((at for at, each in enumerate(self._expected) if role_of(each.message) == "user"), default=None)
        if front is None or last_user is None or front.at < last_user:
            if after is None and before is not None:
                self.report.add(Rule.TAIL, piece.path, "it stands behind the last message")
        elif not (roles[0] in ("tool", "function") or self._parted(before, after)) or _thinks(self._original):
            self.report.add(Rule.TAIL, piece.path, "behind the last user message only results may have it behind them")

    def _parted(self, before: Expected | None, after: Expected | None) -> bool:
        """Whether a message stood between them in the client's conversation in front of which, or behind which, a panel
        may stand. Without ``after`` it stood at the end."""
        if before is None or before.origin < 0:
            return False
        between = self._turns[before.origin + 1 : len(self._turns) if after is None else after.origin]
        return any(role_of(turn) in ("user", "tool") for turn in between)

    def _check_datetimes(self) -> None:
        """A time stands directly in front of a user's message, and times ascend."""
        latest = 0
        for at, piece in enumerate(self._pieces):
            if piece.sort is not Sort.DATETIME:
                continue
            message = self._messages[piece.start]
            time_s = words.seconds_of(str(message.get("content")).removeprefix(words.DATETIME))
            if time_s is None or not _is_plain(message) or not latest <= time_s <= self._terms.now_s:
                self.report.add(Rule.DATETIME, piece.path, "no time, or one that cannot be")
            latest = max(latest, time_s or 0)
            behind = self._pieces[at + 1] if at + 1 < len(self._pieces) else None
            if behind is None or behind.sort is not Sort.CLIENT or role_of(self._messages[behind.start]) != "user":
                self.report.add(Rule.DATETIME, piece.path, "it stands in front of something else than a user's message")
        last = self._pieces[-1] if self._pieces else None
        if last is None or last.sort is not Sort.CLIENT or not self._turns or role_of(self._turns[-1]) != "user":
            return
        before = self._pieces[-2] if len(self._pieces) > 1 else None
        if before is not None and before.sort is Sort.DATETIME:
            key = canonical([len(self._turns), self._turns[-1]])
            self.question = (key, str(self._messages[before.start].get("content")), before.path)
        elif self._of(Sort.PANEL):
            self.report.add(Rule.DATETIME, last.path, "no time stands in front of the question")

    def _check_beginning(self, chunks: list[Chunk]) -> None:
        """What stands in place of the oldest messages: frozen parts, a summary, or nothing after a compaction."""
        summaries = self._of(Sort.SUMMARY)
        uncovered = [each.message for each in self._uncovered]
        counts = [chunk.count or 0 for chunk in chunks]
        frozen = sum(counts)
        live = [self._expected[piece.at].message for piece in self._of(Sort.CLIENT)]
        live = [message for message in live if role_of(message) not in SYSTEM_ROLES]
        if len(uncovered) == frozen and not summaries and not self._has_frozen_summary(chunks, uncovered):
            check_chunks(chunks, [*uncovered, *live], self._detach, self._terms.tokens, self.report)
            self._check_front(chunks)
            return
        if not self._may_compact:
            for chunk in chunks[:1]:
                self.report.add(Rule.FROZEN, chunk.path, "the frozen parts do not have the messages that are not sent")
            for lost in [] if chunks else self._uncovered:
                self._lose(lost, "messages")
            for piece in summaries:
                self.report.add(Rule.COMPACTED, piece.path, "a summary that nobody asked for")
            return
        self._check_compacted(chunks, summaries, uncovered, live)
        self._check_front(chunks)

    def _has_frozen_summary(self, chunks: list[Chunk], uncovered: list[Message]) -> bool:
        """Whether the first frozen part begins with a summary, and not with a message of the client's that looks so."""
        if not chunks or not self._may_compact or not chunks[0].content.startswith(f"[user]: {words.SUMMARY}"):
            return False
        return frozen_text(uncovered[: chunks[0].count]) != chunks[0].content

    def _check_compacted(
        self, chunks: list[Chunk], summaries: list[Piece], uncovered: list[Message], live: list[Message]
    ) -> None:
        frozen = sum(chunk.count or 0 for chunk in chunks)
        pair: list[Message] = []
        if len(summaries) > 1:
            self.report.add(Rule.COMPACTED, summaries[1].path, "a second summary")
        for piece in summaries[:1]:
            pair = self._messages[piece.start : piece.end]
            at = self._pieces.index(piece)
            front = [each for each in self._pieces[:at] if each.sort is Sort.CLIENT]
            if frozen or any(role_of(self._messages[each.start]) not in SYSTEM_ROLES for each in front):
                self.report.add(Rule.COMPACTED, piece.path, "a summary stands at the beginning only")
        if not pair and self._has_frozen_summary(chunks, uncovered):
            pair = _pair_in(chunks[0].content)
        kept = len(uncovered) - max(0, frozen - len(pair)) if frozen else len(uncovered)
        stays = uncovered[kept:]
        systems = [message for message in uncovered[:kept] if role_of(message) in SYSTEM_ROLES]
        if systems:
            self.report.add(Rule.LOST, "messages", "a system message was left out")
        for message in pair:
            if not _is_plain(message):
                self.report.add(Rule.COMPACTED, "messages", "a summary with something else in it")
        if pair and pair[1].get("content") != words.SUMMARY_ANSWER:
            self.report.add(Rule.COMPACTED, "messages", "not the documented answer to a summary")
        rest = [*stays, *live]
        users = sum(role_of(message) == "user" for message in rest)
        if not rest or role_of(rest[0]) != "user" or users < _LEAST_EXCHANGES:
            self.report.add(Rule.COMPACTED, "messages", "what stays begins elsewhere, or lacks the last exchanges")
        check_chunks(chunks, [*pair, *rest], self._detach, self._terms.tokens, self.report)

    def _check_front(self, chunks: list[Chunk]) -> None:
        """Frozen parts stand in front of the conversation."""
        first = next((piece.start for piece in self._pieces if piece.sort is Sort.CLIENT), len(self._messages))
        for chunk in chunks:
            if int(chunk.path.removeprefix("messages[").removesuffix("]")) > first:
                self.report.add(Rule.FROZEN, chunk.path, "it stands within the conversation")


def _pair_in(content: str) -> list[Message]:
    """The summary and its answer at the beginning of a frozen part."""
    answer = f"\n[assistant]: {words.SUMMARY_ANSWER}\n"
    end = content.find(answer)
    said = content[len("[user]: ") : end] if end >= 0 else content
    return [{"role": "user", "content": said}, {"role": "assistant", "content": words.SUMMARY_ANSWER}]


def _is_plain(message: Message) -> bool:
    return isinstance(message, dict) and message.keys() == {"role", "content"} and isinstance(message["content"], str)


def _text(message: Message) -> str:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _continues(system: Message, found: Message) -> bool:
    """Whether it is the system message with text behind it."""
    if not isinstance(system, dict) or not isinstance(found, dict) or system.keys() != found.keys():
        return False
    same_rest = all(same(system[name], found[name]) for name in system if name != "content")
    return same_rest and _text(found).startswith(_text(system))


def _thinks(body: Body) -> bool:
    said = [body.get(name) for name in ("thinking", "reasoning_effort", "reasoning")]
    return any(each not in (None, "none", {"type": "disabled"}) for each in said)
