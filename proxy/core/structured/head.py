"""The head of an assembly: the client's system messages, the map of the repository behind them, and stable files."""

from collections.abc import Sequence

from proxy.core.structured.assembly import Item, Kind, Section
from proxy.core.structured.conversation import Turn
from proxy.core.structured.sections import FILE_JOINT, PART_JOINT, SYMBOL_JOINT, message, section
from proxy.core.structured.texts import AssemblyTexts
from proxy.core.wire.json_body import Unreadable, elements, join_members, members_of
from proxy.core.wire.surrogates import text_json


def system_section(turns: Sequence[Turn]) -> Section | None:
    """The client's own system messages."""
    return section(Kind.SYSTEM, "", [Item(Kind.SYSTEM, f"system:{i}", raw=turn.raw) for i, turn in enumerate(turns)])


def map_sections(
    legend: str, symbols: Sequence[Item], files: Sequence[Item], texts: AssemblyTexts
) -> tuple[Section, ...]:
    """What stands in the system message behind the client's words: the legend, the symbols, and the stable files."""
    header = texts.repository_map
    legends = section(Kind.LEGEND, header, [Item(Kind.LEGEND, "legend", legend)] if legend else [])
    found = (
        legends,
        section(Kind.SYMBOLS, "" if legends else header, symbols, SYMBOL_JOINT),
        section(Kind.FILES, texts.reference_l0, files, FILE_JOINT),
    )
    return tuple(one for one in found if one is not None)


def system_messages(turns: Sequence[Turn], sections: Sequence[Section]) -> tuple[bytes, ...]:
    """The system messages. What is added stands behind the last of them, after a blank line; it becomes a message of
    its own where there is none, or where the last one's content is neither a text nor a list."""
    added = PART_JOINT.join([one.text for one in sections])
    raws = tuple(turn.raw for turn in turns)
    if not added:
        return raws
    extended = _extended(raws[-1], added) if raws else None
    return (*raws, message("system", added)) if extended is None else (*raws[:-1], extended)


def _extended(raw: bytes, added: str) -> bytes | None:
    """The message with a text behind its own, whose bytes stay as they are."""
    try:
        members = members_of(raw)
        content = bytes(members.get("content", b""))
        if content == b'""':
            return join_members(members, {"content": text_json(added)})
        if content.startswith(b'"'):
            return join_members(members, {"content": content[:-1] + text_json(PART_JOINT + added)[1:]})
        if not content.startswith(b"["):
            return None
        part = b'{"type":"text","text":' + text_json(PART_JOINT + added) + b"}"
        return join_members(members, {"content": b"[" + b",".join((*map(bytes, elements(content)), part)) + b"]"})
    except Unreadable:
        return None
