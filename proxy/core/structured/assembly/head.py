"""The head of an assembly: the client's system messages, the map of the repository behind them, and stable files."""

from collections.abc import Sequence
from dataclasses import replace

from proxy.core.structured.assembly.sections import FILE_JOINT, PART_JOINT, SYMBOL_JOINT, one_text, section
from proxy.core.structured.assembly.texts import AssemblyTexts
from proxy.core.structured.blocks.blocks import Item, Kind, Section
from proxy.core.structured.messages.turn import Turn
from proxy.core.structured.messages.written import message
from proxy.core.wire.json_body import Unreadable, elements, join_members, members_of
from proxy.core.wire.surrogates import text_json


def map_sections(
    legend: str, symbols: Sequence[Item], files: Sequence[Item], texts: AssemblyTexts
) -> tuple[Section, ...]:
    """What stands in the system message behind the client's words: the legend, the symbols, and the stable files."""
    header = texts.repository_map
    legends = section(Kind.LEGEND, header, [Item(Kind.LEGEND, "legend", legend)] if legend else [])
    symbol_map = section(Kind.SYMBOLS, "" if legends else header, symbols, SYMBOL_JOINT)
    return one_text((legends, symbol_map, section(Kind.FILES, texts.reference_l0, files, FILE_JOINT)))


def system_messages(
    turns: Sequence[Turn], sections: Sequence[Section]
) -> tuple[tuple[bytes, ...], tuple[Section, ...]]:
    """The system messages, and what is added to them as it is written. It stands behind the last message, after a blank
    line; it becomes a message of its own where there is none, or where the last one's content is neither a text nor a
    list."""
    raws, own = tuple(turn.raw for turn in turns), tuple(sections)
    if not own:
        return raws, own
    added = "".join([one.text for one in own])
    content = _content(raws[-1]) if raws else b""
    if not content.startswith((b'"', b"[")):
        return (*raws, message("system", added)), own
    if content == b'""':
        return (*raws[:-1], join_members(members_of(raws[-1]), {"content": text_json(added)})), own
    parted = (replace(own[0], lead=PART_JOINT), *own[1:])
    return (*raws[:-1], _extended(raws[-1], content, text_json(PART_JOINT + added))), parted


def _content(raw: bytes) -> bytes:
    """The content of a message as JSON; nothing where it cannot be read."""
    try:
        content = bytes(members_of(raw).get("content", b""))
        if content.startswith(b"["):
            elements(content)
        return content
    except Unreadable:
        return b""


def _extended(raw: bytes, content: bytes, added: bytes) -> bytes:
    """The message with a text behind its own, whose bytes stay as they are."""
    if content.startswith(b'"'):
        return join_members(members_of(raw), {"content": content[:-1] + added[1:]})
    part = b'{"type":"text","text":' + added + b"}"
    return join_members(members_of(raw), {"content": b"[" + b",".join((*map(bytes, elements(content)), part)) + b"]"})
