"""The conversation of a client that describes its messages: shortened, repaired, frozen in part, compacted. A
conversation and the client's wishes come in; the conversation that is sent goes out. What a compaction leaves out is
decided in ``compaction``, from what the session had before.

The file begins with how a message is read: its kind, its calls and results. All of this is JSON that is not trusted. A
message is read as a whole or not at all. A message of an unknown form, such as one with an old ``function_call`` or
with a call id that is no string, may belong to its neighbours in a way that is not known here.

Then come groups: a provider accepts a call only if its results follow directly, so a call and its results are matched
within their group. Ids need not be unique in the whole conversation: several models number the calls of each answer
anew. A conversation may be cut only between groups. A group is brought into the form that providers accept: no call
without a result, no result without a call, and the calls of one turn in one message.

``ruled`` applies the rules one after another: each rule sees what the rules before it have left. Messages that no rule
touches keep the client's own bytes.

``frozen`` shows the oldest part of a long conversation in panels that never change, and no longer as messages. A chunk
is cut at the first place where it has enough messages and tokens, if enough of both stay behind it. Its content depends
only on the messages up to its end. So nothing has to be stored, and a conversation that grows by turns has the same
chunks in each request, and more of them later. A chunk that could not be cut is not cut elsewhere. Each record of a
chunk's text ends with a line break, and nothing else stands between two records, as in the original: ``[role]: text``
for a message (``[role name]: text`` if it has a name), ``tool_call name(arguments)`` for a call, and only the text for
a result. Arguments are the model's own string.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain, islice

import msgspec
from msgspec import UNSET, Raw, UnsetType

from proxy.context import Conversation, Turn
from proxy.context.panels import FROZEN_PREFIX, HISTORY_KIND, Panel
from proxy.kit.errors import InvalidRequest
from proxy.kit.modes import Edit
from proxy.kit.value import dataclass, replace
from proxy.protocol.request import parts_of
from proxy.protocol.request.message import MARK_KEYS
from proxy.protocol.request.tokens import THOUGHTS
from proxy.protocol.wire.json_body import Members, Unreadable, elements, join_members, members_of, string_of, text_json


class Sort(StrEnum):
    """The kind of a message: one of the system; a user's, or an assistant's that calls no tool (``PLAIN``); an
    assistant's that calls tools; the answer to one call; or a message of a form that is not known here."""

    SYSTEM = "system"
    PLAIN = "plain"
    CALLS = "calls"
    RESULT = "result"
    UNREAD = "unread"


MADE = -1
"""The origin of a message that the client did not send."""


class HistoryEntry(msgspec.Struct, frozen=True, gc=False):
    """A message that the rules work on, with the facts that they need. (A struct, not a dataclass: there is one for
    every message of a request.)

    ``origin`` is its index in the client's conversation, or ``MADE``. ``ids`` are the ids of a message's calls in their
    order, each once, or the one id that a result names. ``has_content``: the message has some text, media or refusal.
    ``is_empty``: the message has no such content, no call or result, and no other member with a value.
    """

    origin: int
    turn: Turn
    sort: Sort
    ids: tuple[str, ...] = ()
    has_content: bool = True
    is_empty: bool = False


Group = list[HistoryEntry]

_NOTHING = (b"null", b'""', b"[]", b"{}")
# Members that do not count as content of their own beside the content and the calls.
_FRAME = frozenset({"role", "name", "content", "tool_calls", "function_call", "tool_call_id", *MARK_KEYS})
# Members in which a model's answer may stand in place of the content.
_SAID = ("refusal", "audio")
# The members of most messages.
_PLAIN = ("role", "content")
_SPEAKERS = frozenset({"user", "assistant"})


def entry_of(origin: int, turn: Turn) -> HistoryEntry:
    """Read a message. Finding its members and the types of its parts takes most of the time."""
    try:
        return (
            HistoryEntry(origin, turn, Sort.SYSTEM) if turn.is_system else _read(origin, turn, turn.role, turn.members)
        )
    except Unreadable:
        return HistoryEntry(origin, turn, Sort.UNREAD)


def is_given(members: Members, name: str) -> bool:
    """Whether the member is there and has a value that is not empty."""
    raw = members.get(name)
    return raw is not None and (len(raw) > len(b"null") or bytes(raw) not in _NOTHING)


def call_members(members: Members) -> list[Members]:
    """The calls of a message, as their members. Raises Unreadable."""
    return [members_of(raw) for raw in elements(members["tool_calls"])] if is_given(members, "tool_calls") else []


def text_member(members: Members, name: str) -> str:
    """A member that is a text. Raises Unreadable if it is not a text or is missing. Other values are not parsed."""
    found = string_of(members.get(name, b""))
    if found is None:
        raise Unreadable(f"{name} is no text")
    return found


def _read(origin: int, turn: Turn, role: str, members: Members) -> HistoryEntry:
    has_content = _has_content(members.get("content"))
    if role in _SPEAKERS and len(members) == len(_PLAIN) and "content" in members:
        return HistoryEntry(origin, turn, Sort.PLAIN, (), has_content, not has_content)
    has_content = has_content or any(is_given(members, name) for name in _SAID)
    ids = tuple([text_member(call, "id") for call in call_members(members)])
    if len(set(ids)) < len(ids) or is_given(members, "function_call"):
        raise Unreadable("two calls of one id, or a call of the old form")
    if role == "tool" and not ids:
        return HistoryEntry(origin, turn, Sort.RESULT, (text_member(members, "tool_call_id"),), has_content)
    if role not in _SPEAKERS or is_given(members, "tool_call_id") or (ids and role != "assistant"):
        raise Unreadable("no known role, or calls or a result of another role")
    others = has_content or ids or any(name not in _FRAME and is_given(members, name) for name in members)
    return HistoryEntry(origin, turn, Sort.CALLS if ids else Sort.PLAIN, ids, has_content, not others)


def _has_content(raw: Raw | None) -> bool:
    """Whether there is any content. Raises Unreadable for content of no known form, and for parts that are calls or
    results themselves, as in another dialect."""
    if raw is None:
        return False
    first = bytes(memoryview(raw)[:1])
    if first == b'"':
        return len(raw) > len(b'""')
    if first == b"n":
        return False
    if first != b"[":
        raise Unreadable("content is neither text nor a list")
    found = False
    for each in elements(raw):
        part = members_of(each)
        kind = text_member(part, "type")
        if "tool" in kind or "function" in kind:
            raise Unreadable("a call or a result among the parts")
        found = found or kind != "text" or is_given(part, "text")
    return found


def grouped(entries: Iterable[HistoryEntry]) -> Iterator[Group]:
    """The messages in groups, so that calls are together with their results; any other message is a group of its own. A
    message that cannot be read belongs to the group in which it stands, and system messages do not end a group."""
    group: Group = []
    last = Sort.PLAIN
    for each in entries:
        sort = each.sort
        if group and (sort is Sort.PLAIN or (sort is Sort.CALLS and last is Sort.RESULT)):
            yield group
            group = []
        group.append(each)
        last = last if sort is Sort.SYSTEM else sort
        if sort is Sort.PLAIN:
            yield group
            group = []
    if group:
        yield group


def is_known(group: Group) -> bool:
    """Whether it is known which call each result of the group answers: every message can be read, and no two of its
    calls have the same id."""
    if any(each.sort is Sort.UNREAD for each in group):
        return False
    ids = [call_id for each in group if each.sort is Sort.CALLS for call_id in each.ids]
    return len(set(ids)) == len(ids)


def cuts(turns: Sequence[Turn]) -> tuple[int, ...]:
    """The indices of the user messages in front of which the conversation may be cut, in ascending order.

    A call and its results are a group, with everything between them. A message that cannot be read may answer the call
    in front of it, and is treated as a result. Finding the messages' members takes most of the time.
    """
    found: list[int] = []
    callers: dict[str, int] = {}
    latest = -1
    for index, turn in enumerate(turns):
        each = entry_of(index, turn)
        if each.sort is Sort.CALLS:
            callers.update(dict.fromkeys(each.ids, index))
        elif each.sort in (Sort.RESULT, Sort.UNREAD):
            caller = callers.get(each.ids[0], latest) if each.ids else latest
            while found and found[-1] > caller >= 0:  # it stands between a call and its result
                found.pop()
        elif each.sort is Sort.PLAIN and turn.role == "user":
            found.append(index)
        if turn.role == "assistant":
            latest = index
    return tuple(found)


PLACEHOLDER = "No result was recorded: the call was interrupted, or its result was lost."
"""The text in the place of a missing result, if other calls of the same message have their results."""


def repaired(group: Group) -> tuple[Group, int]:
    """A group that ``is_known``, with all results behind their calls and no call without a result, and how many of its
    messages were changed or left out for that.

    A message loses its calls if none of them is answered, and is left out if it has no other content. There is one
    exception: a message with content behind a message whose calls are answered keeps its calls, and they get
    placeholders. Without its calls it would stand between the other message's calls and their results.
    """
    asked = {call_id for each in group if each.sort is Sort.CALLS for call_id in each.ids}
    answered = asked.intersection(each.ids[0] for each in group if each.sort is Sort.RESULT)
    kept: Group = []
    missing: list[HistoryEntry] = []
    repairs = behind_result = 0
    for each in group:
        sort = each.sort
        if sort is Sort.RESULT and each.ids[0] not in answered:
            repairs += 1
            continue
        if sort is Sort.CALLS and not answered.issuperset(each.ids):
            repairs += 1
            if answered.isdisjoint(each.ids) and not (each.has_content and behind_result):
                if each.has_content:
                    left = Turn.of(join_members(each.turn.members, {"tool_calls": None}))
                    kept.append(entry_of(each.origin, left))
                continue
            missing += _placeholders(each, answered)
        kept.append(each)
        behind_result = len(kept) if sort is not Sort.SYSTEM else behind_result
    return [*kept[:behind_result], *missing, *kept[behind_result:]], repairs


def _placeholders(asking: HistoryEntry, answered: set[str]) -> Group:
    """A result for each call of the message that has none."""
    calls = zip(asking.ids, call_members(asking.turn.members), strict=True)
    missing = [call["id"] for call_id, call in calls if call_id not in answered]
    content = text_json(PLACEHOLDER)
    return [
        entry_of(MADE, Turn.of(b'{"role":"tool","tool_call_id":%s,"content":%s}' % (raw, content))) for raw in missing
    ]


_JOINED = frozenset({"role", "content", "tool_calls", *MARK_KEYS})
# The separator between the texts of two messages, as JSON writes it.
_TEXT_JOINT = rb"\n"


def merged(group: Group) -> tuple[Group, int]:
    """A group that ``is_known``, with neighbouring calls in one message, and how many messages were joined to another
    one. A message is not joined if it has members besides its content and calls that the first message does not have in
    the same way."""
    chains: list[Group] = []
    for each in group:
        if chains and _is_joined(each, chains[-1][0]):
            chains[-1].append(each)
        else:
            chains.append([each])
    return [_joined(chain) for chain in chains], len(group) - len(chains)


def _is_joined(each: HistoryEntry, first: HistoryEntry) -> bool:
    """Whether a message is joined to those in front of it, of which this is the ``first``."""
    if not each.sort is first.sort is Sort.CALLS:
        return False
    members, others = each.turn.members, first.turn.members
    own = [name for name in members if name not in _JOINED and is_given(members, name)]
    return all(name in others and bytes(others[name]) == bytes(members[name]) for name in own)


def _joined(chain: Group) -> HistoryEntry:
    if len(chain) == 1:
        return chain[0]
    parts = [each.turn.members for each in chain]
    calls = b",".join([bytes(members["tool_calls"])[1:-1] for members in parts])
    changes: dict[str, bytes | None] = {"tool_calls": b"[" + calls + b"]"}
    if contents := [bytes(members["content"]) for members in parts if is_given(members, "content")]:
        changes["content"] = _content(contents)
    changes |= {name: bytes(each[name]) for name in MARK_KEYS for each in parts if is_given(each, name)}  # the last one
    return entry_of(chain[0].origin, Turn.of(join_members(chain[0].turn.members, changes)))


def _content(contents: Sequence[bytes]) -> bytes:
    """The contents as one: a text if all are texts, otherwise a list of parts."""
    if len(contents) == 1:
        return contents[0]
    if all(content.startswith(b'"') for content in contents):
        return b'"' + _TEXT_JOINT.join([content[1:-1] for content in contents]) + b'"'
    return b"[" + b",".join(filter(None, map(_parts, contents))) + b"]"


def _parts(content: bytes) -> bytes:
    """The content's parts as JSON without the brackets of the list; empty if there are none."""
    return b'{"type":"text","text":' + content + b"}" if content.startswith(b'"') else content[1:-1].strip()


class Status(StrEnum):
    """The client's wish for a message: it is sent as it came (``ACTIVE``), or its short form in place of its content.
    It is not sent if it is deleted, or if the client shows it elsewhere, for example in a panel (``DETACHED``)."""

    ACTIVE = "active"
    SUMMARIZED = "summarized"
    DELETED = "deleted"
    DETACHED = "detached"


class MessageMeta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a client says of the message of this ``index``, as it sends it. ``tl_dr`` is the short form of a summarized
    message; no other message has one."""

    index: int
    status: Status
    tl_dr: str | None | UnsetType = UNSET

    @property
    def is_sent(self) -> bool:
        """Whether the message is sent in some form."""
        return self.status in (Status.ACTIVE, Status.SUMMARIZED)


@dataclass(frozen=True, slots=True)
class DetachTerms:
    """The minimums for freezing the oldest part of a conversation. The part has at least ``chunk_messages`` and
    ``chunk_tokens``, and at least ``keep_messages`` and ``keep_tokens`` stay behind it. The defaults are those of the
    original of these rules.

    Clients and operators ask for it by the name ``detach``, as the original calls it. In the proxy it is called
    freezing, and a frozen part is called a chunk. A message of the status ``detached`` is another matter: the client
    itself shows it elsewhere."""

    chunk_messages: int = 25
    chunk_tokens: int = 5_000
    keep_messages: int = 25
    keep_tokens: int = 7_500


_PARAM = "stratiform.messages_meta"


@dataclass(frozen=True, slots=True)
class RuledHistory:
    """A conversation as it is sent. ``origins`` has, for each message of history and prompt, its index in the client's
    conversation, counted without the leading system messages. For merged messages it is the index of the first one, and
    for messages that the client did not send it is ``MADE``. ``edits`` counts the changed messages by the reason; it
    has no reason without a changed message."""

    conversation: Conversation
    origins: tuple[int, ...]
    edits: Mapping[Edit, int]

    def without(self, end: int, reason: Edit, instead: Sequence[Turn] = ()) -> "RuledHistory":
        """The conversation without the first ``end`` messages of its history, but with the system messages among them.
        The messages ``instead`` stand behind these. The messages that are left out count under this reason."""
        history = self.conversation.history
        kept = [index for index in range(end) if history[index].is_system]
        return RuledHistory(
            replace(self.conversation, history=(*(history[index] for index in kept), *instead, *history[end:])),
            (*(self.origins[index] for index in kept), *(MADE for _ in instead), *self.origins[end:]),
            {**self.edits, reason: end - len(kept)},
        )


def ruled(conversation: Conversation, metas: Mapping[int, MessageMeta]) -> RuledHistory:
    """The conversation after all rules except compaction and freezing. ``metas`` are by the index of the client's
    message. The last user message always stays. The time is linear in the messages. Raises InvalidRequest for an index
    that names no message, a system message, or the last user message with a status other than active."""
    has_user = bool(conversation.prompt) and conversation.prompt[0].role == "user"
    last_user = len(conversation.history) if has_user else None
    _check(metas, conversation, last_user)
    edits: Counter[Edit] = Counter()
    start = len(conversation.system) - conversation.added
    said = _as_said(conversation.turns, {index - start: meta for index, meta in metas.items()}, edits)
    spoken = [each for each in said if not each.is_empty or each.origin == last_user]
    edits[Edit.HISTORY_REMOVED] += len(said) - len(spoken)
    sent = _in_groups(spoken, edits)
    origins, turns = tuple([each.origin for each in sent]), tuple([each.turn for each in sent])
    cut = 0 if last_user is None else origins.index(last_user)
    return RuledHistory(Conversation(conversation.system, turns[:cut], turns[cut:]), origins, +edits)


def _check(metas: Mapping[int, MessageMeta], conversation: Conversation, last_user: int | None) -> None:
    behind_system = len(conversation.system) - conversation.added
    turns = tuple(conversation)[conversation.added :]
    for index, meta in metas.items():
        if not 0 <= index < len(turns):
            why = f"there is none: the request has {len(turns)}"
        elif turns[index].is_system:
            why = "it is a system message, which stays as it is"
        elif last_user is not None and index == behind_system + last_user and meta.status is not Status.ACTIVE:
            why = "it is the last user message, which is always sent as it came"
        else:
            continue
        raise InvalidRequest(f"'{_PARAM}' names the message {index}, but {why}", param=_PARAM, code="invalid_index")


def _as_said(turns: Sequence[Turn], metas: Mapping[int, MessageMeta], edits: Counter[Edit]) -> list[HistoryEntry]:
    """The messages after the client's wishes: summarized ones in their short form, without those that are not sent."""
    found: list[HistoryEntry] = []
    for index, turn in enumerate(turns):
        meta = metas.get(index)
        if meta is not None and not meta.is_sent:
            edits[Edit.HISTORY_REMOVED] += 1
            continue
        shown = turn if meta is None or meta.status is Status.ACTIVE else _summarized(turn, meta.tl_dr or "")
        edits[Edit.HISTORY_SUMMARIZED] += shown is not turn
        found.append(entry_of(index, shown))
    return found


def _summarized(turn: Turn, tl_dr: str) -> Turn:
    """The message with a short form in place of its content. A message that is no JSON object has no content, and stays
    as it is."""
    content = text_json(tl_dr)
    if turn.parsed is None or bytes(turn.parsed.get("content", b"")) == content:
        return turn
    return Turn.of(join_members(turn.parsed, {"content": content}))


def _in_groups(entries: Sequence[HistoryEntry], edits: Counter[Edit]) -> Group:
    """The messages with calls and results matched, and neighbouring calls joined. A group that is not known stays as it
    came."""
    found: Group = []
    for group in grouped(entries):
        if group[0].sort is Sort.PLAIN or not is_known(group):  # most messages are a plain group of their own
            found += group
            continue
        whole, repairs = repaired(group)
        joined, merges = merged(whole)
        edits[Edit.HISTORY_REPAIRED] += repairs
        edits[Edit.CALLS_MERGED] += merges
        found += joined
    return found


def chunk_text(turns: Iterable[Turn]) -> str:
    """The messages as text, without system messages. The model's thinking is left out, as providers leave it out of
    earlier turns. Raises Unreadable if a message holds something other than text or cannot be read, or if a call and
    its results are not all among these messages."""
    groups = grouped([entry_of(index, turn) for index, turn in enumerate(turns) if not turn.is_system])
    return "".join([f"{record}\n" for group in groups for record in _records(group)])


def _records(group: Group) -> Iterator[str]:
    asked = {call_id for each in group if each.sort is Sort.CALLS for call_id in each.ids}
    answered = {call_id for each in group if each.sort is Sort.RESULT for call_id in each.ids}
    if asked != answered:
        raise Unreadable("calls and results that do not belong together")
    yield from chain.from_iterable(map(_message, group))


def _message(entry: HistoryEntry) -> Iterator[str]:
    sort, members = entry.sort, entry.turn.members
    if sort is Sort.UNREAD or is_given(members, "audio"):
        raise Unreadable("a message that is no text")
    text = _text(members)
    if sort is Sort.RESULT:
        yield text
    elif text or sort is Sort.PLAIN:
        name = f" {text_member(members, 'name')}" if is_given(members, "name") else ""
        yield f"[{entry.turn.role}{name}]: {text}"
    if sort is Sort.CALLS:
        yield from map(_call, call_members(members))


def _text(members: Members) -> str:
    """The content and a refusal, as one text."""
    texts: list[str] = []
    for kind, text in parts_of(members):
        if kind in ("text", "refusal") and text is not None:
            texts.append(text)
        elif kind not in THOUGHTS:
            raise Unreadable(f"a part that is no text: {kind}")
    if is_given(members, "refusal"):
        texts.append(text_member(members, "refusal"))
    return "\n".join(filter(None, texts))


def _call(call: Members) -> str:
    form, said = ("function", "arguments") if is_given(call, "function") else ("custom", "input")
    if form not in call:
        raise Unreadable("a call of no known form")
    told = members_of(call[form])
    return f"tool_call {text_member(told, 'name')}({text_member(told, said) if is_given(told, said) else '{}'})"


def frozen(
    ruled: RuledHistory, terms: DetachTerms, tokens: Callable[[Turn], int], most: int | None = None
) -> tuple[RuledHistory, tuple[Panel, ...]]:
    """The conversation without its oldest parts, and these parts as panels in their order. Each message is counted at
    most once, and the time is linear. System messages, and all messages from the last user message on, stay where they
    are. No chunk is made that has a message with something other than text or a message that cannot be read, and none
    behind it. ``tokens`` must return the same number for a message in each request, whatever markers it carries:
    otherwise chunks are cut elsewhere, and the provider's cache is lost."""
    history = ruled.conversation.history
    chunks: list[Panel] = []
    end = 0
    for start, boundary, count in islice(_cuts(ruled, terms, tokens) if most != 0 else (), most):
        try:
            text = chunk_text(history[start:boundary])
        except Unreadable:
            break
        chunks.append(Panel(f"{FROZEN_PREFIX}{len(chunks) + 1}", HISTORY_KIND, f"Chat ({count})", text))
        end = boundary
    return (ruled.without(end, Edit.HISTORY_FROZEN) if chunks else ruled), tuple(chunks)


def _cuts(ruled: RuledHistory, terms: DetachTerms, tokens: Callable[[Turn], int]) -> Iterator[tuple[int, int, int]]:
    """The begin and the end of each chunk in the history, and its number of messages. The prompt is never cut, although
    some clients write results into user messages there. The tokens of placeholders do not count: the results that may
    replace them later can be shorter, and a chunk that was already cut would have to be taken back."""
    turns = ruled.conversation.turns
    left_messages = sum(not turn.is_system for turn in turns)
    if left_messages < terms.chunk_messages + terms.keep_messages:
        return
    counts = [
        0 if turn.is_system or (origin == MADE and turn.has_results) else tokens(turn)
        for turn, origin in zip(turns, ruled.origins, strict=True)
    ]
    left_tokens = sum(counts)
    start = chunk_messages = chunk_tokens = 0
    for index, is_end in enumerate(_turn_ends(turns)[: len(ruled.conversation.history)]):
        chunk_messages += not turns[index].is_system
        chunk_tokens += counts[index]
        if not is_end or chunk_messages < terms.chunk_messages or chunk_tokens < terms.chunk_tokens:
            continue
        left_messages -= chunk_messages
        left_tokens -= chunk_tokens
        if left_messages < terms.keep_messages or left_tokens < terms.keep_tokens:
            return
        yield start, index + 1, chunk_messages
        start, chunk_messages, chunk_tokens = index + 1, 0, 0


def _turn_ends(turns: Sequence[Turn]) -> list[bool]:
    """For each message, whether a turn of the model ends with it: a user message follows, and the message itself is not
    a user message. System messages are skipped."""
    ends: list[bool] = []
    is_user_next = False
    for turn in reversed(turns):
        is_user = turn.role == "user"
        ends.append(is_user_next and not is_user and not turn.is_system)
        is_user_next = is_user_next if turn.is_system else is_user
    return ends[::-1]
