"""The rules of the history: the client's wishes for single messages, and the repairs.

The rules apply one after another: each rule sees what the rules before it have left. Messages that no rule touches keep
the client's own bytes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum

from proxy.core.reasons import Edit
from proxy.core.structured.history.groups import Entry, Group, Sort, entry_of, grouped
from proxy.core.structured.history.repair import merged, repaired
from proxy.core.structured.messages import Conversation, Turn
from proxy.core.value import dataclass
from proxy.core.wire.json_body import Unreadable, join_members
from proxy.core.wire.surrogates import text_json
from proxy.errors import InvalidRequest


class Status(StrEnum):
    """The client's wish for a message."""

    ACTIVE = "active"
    """It is sent as it came."""
    SUMMARIZED = "summarized"
    """Its short form is sent in place of its content."""
    DELETED = "deleted"
    """It is not sent."""
    DETACHED = "detached"
    """It is not sent: the client shows it elsewhere, for example in a panel."""


@dataclass(frozen=True, slots=True)
class MessageMeta:
    """The status of one message. ``tl_dr`` is the short form of a summarized message, and empty for all others."""

    status: Status
    tl_dr: str = ""

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
    spoken = [each for each in said if not each.shape.is_empty or each.origin == last_user]
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


def _as_said(turns: Sequence[Turn], metas: Mapping[int, MessageMeta], edits: Counter[Edit]) -> list[Entry]:
    """The messages after the client's wishes: summarized ones in their short form, without those that are not sent."""
    found: list[Entry] = []
    for index, turn in enumerate(turns):
        meta = metas.get(index)
        if meta is not None and not meta.is_sent:
            edits[Edit.HISTORY_REMOVED] += 1
            continue
        shown = turn if meta is None or meta.status is Status.ACTIVE else _summarized(turn, meta.tl_dr)
        edits[Edit.HISTORY_SUMMARIZED] += shown is not turn
        found.append(entry_of(index, shown))
    return found


def _summarized(turn: Turn, tl_dr: str) -> Turn:
    """The message with a short form in place of its content. A message that is no JSON object has no content, and stays
    as it is."""
    try:
        members = turn.members
    except Unreadable:
        return turn
    content = text_json(tl_dr)
    if "content" in members and bytes(members["content"]) == content:
        return turn
    return Turn.of(join_members(members, {"content": content}))


def _in_groups(entries: Sequence[Entry], edits: Counter[Edit]) -> Group:
    """The messages with calls and results matched, and neighbouring calls joined."""
    found: Group = []
    for group in grouped(entries):
        if group[0].shape.sort is Sort.PLAIN:  # a group of its own, as most messages are
            found += group
            continue
        whole, repairs = repaired(group)
        joined, merges = merged(whole)
        edits[Edit.HISTORY_REPAIRED] += repairs
        edits[Edit.CALLS_MERGED] += merges
        found += joined
    return found
