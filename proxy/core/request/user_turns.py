"""The user's turns of a conversation, each with the answer in front of it, and the head in front of all turns."""

from bisect import bisect_left
from collections.abc import Container, Sequence

from msgspec import Raw

from proxy.core.digest import chain, digest
from proxy.core.recognition.pieces import MessageKind, PieceKind
from proxy.core.request.message import SYSTEM_ROLES, Message
from proxy.core.request.transcript import Transcript


def user_turns(start: bytes, transcript: Transcript, without: Container[int] = ()) -> list[tuple[int, bytes]]:
    """For each user message of the conversation, its index and a digest. The digest covers ``start``, the user's turns
    up to this message, and the answer in front of each. Instructions, context, and the messages ``without`` are left
    out."""
    pairs = _pairs(transcript, without) if without else transcript.pairs
    found: list[tuple[int, bytes]] = []
    key = start
    for index, pair in pairs:
        key = chain(key, pair)
        found.append((index, key))
    return found


def tokens_from(
    transcript: Transcript,
    turns: Sequence[tuple[int, bytes]],
    without: Container[int],
    message: int,
    *,
    caches_output: bool,
) -> int:
    """The conversation's tokens from a message up to the end of the previous request. Context and the messages
    ``without`` do not count: they change their places from one request to the next. The answer to the previous request
    counts only if the provider stores answers, too."""
    messages, end = transcript.messages, turns[-1][0]
    if not caches_output and end > message and messages[end - 1].role == "assistant":
        end -= 1
    context = {
        near
        for index in transcript.recognised[bisect_left(transcript.recognised, message) :]
        if (known := messages[index].recognition) is not None and known.form is not MessageKind.PROMPT
        for near in (index, index + 1)
    }
    return sum(messages[i].tokens for i in range(message, end) if i not in context and i not in without)


def head_digest(transcript: Transcript, tools: Raw | bytes | None) -> bytes:
    """A digest of the tools and the system messages in front of the conversation. Volatile lines are left out: they are
    mostly moved to the end."""
    system = (_fixed(message) for message in transcript.messages[: transcript.preamble])
    return digest(bytes(tools) if tools is not None else b"", *system)


def _fixed(message: Message) -> bytes:
    known = message.recognition
    if known is None or not message.cut_digests:
        return message.digest
    kept = (own for cut, own in zip(known.cuts, message.cut_digests, strict=True) if cut.kind is not PieceKind.VOLATILE)
    return digest(*kept)


def _pairs(transcript: Transcript, without: Container[int]) -> list[tuple[int, bytes]]:
    pairs: list[tuple[int, bytes]] = []
    last = before = b""
    for index in range(transcript.preamble, len(transcript.messages)):
        if index in without:
            continue
        own = transcript.turns[index]
        if transcript.messages[index].is_asked:
            pairs.append((index, digest(last, own)))
        elif transcript.messages[index].role not in SYSTEM_ROLES:
            last = digest(before, own)
        before = own
    return pairs
