"""What is added to the system prompt stands behind the client's own bytes."""

import orjson
import pytest

from proxy.core.structured.assembly.sections import (
    file_items,
    map_sections,
    symbol_items,
    system_messages,
    turns_section,
)
from proxy.core.structured.blocks.blocks import Kind, Section
from proxy.core.structured.messages import Conversation, Turn
from tests.contexts import MAP, TEXTS, a_file, conversation_of, fenced
from tests.talk import system, text_part

ADDED = map_sections("c=class", (), (), TEXTS)
MAP_TEXT = f"{MAP}c=class"


def written(conversation: Conversation, sections: tuple[Section, ...] = ADDED) -> list[object]:
    return [orjson.loads(raw) for raw in system_messages(conversation.system, sections)[0]]


def test_the_map_is_legend_symbols_and_files_under_one_header() -> None:
    symbols = symbol_items(("a", "b"), {"a": "a:", "b": "b:"})
    files = file_items([a_file("f")])

    found = map_sections("c=class", symbols, files, TEXTS)
    assert "".join(one.text for one in found) == f"{MAP_TEXT}\n\na:\nb:\n\n{TEXTS.reference_l0}{fenced('f')}"
    assert [one.text for one in map_sections("", symbols, (), TEXTS)] == [f"{MAP}a:\nb:"]
    assert map_sections("", (), (), TEXTS) == ()


def test_the_map_stands_behind_the_system_prompt_after_a_blank_line() -> None:
    assert written(conversation_of(system("Be kind."))) == [system(f"Be kind.\n\n{MAP_TEXT}")]
    assert written(conversation_of(system(""))) == [system(MAP_TEXT)]
    assert written(conversation_of()) == [system(MAP_TEXT)]


def test_of_several_system_messages_the_last_one_carries_the_map() -> None:
    two = conversation_of(system("a"), {"role": "developer", "content": "b", "name": "n"})

    assert written(two) == [system("a"), {"role": "developer", "content": f"b\n\n{MAP_TEXT}", "name": "n"}]


def test_a_list_gets_a_part_more() -> None:
    parts = [text_part("a"), text_part("b")]
    assert written(conversation_of(system(parts))) == [system([*parts, text_part(f"\n\n{MAP_TEXT}")])]
    assert written(conversation_of(system([]))) == [system([text_part(f"\n\n{MAP_TEXT}")])]


@pytest.mark.parametrize("content", [None, 7, {"a": 1}, True])
def test_what_is_neither_text_nor_list_stays_and_the_map_is_a_message_of_its_own(content: object) -> None:
    assert written(conversation_of(system(content))) == [system(content), system(MAP_TEXT)]


def test_the_clients_bytes_stay_as_they_are() -> None:
    raw = rb'{ "role": "system", "content": "\u00e9 \ud83d" }'
    ((found,), _) = system_messages(Conversation.of([raw]).system, ADDED)

    assert rb'"\u00e9 \ud83d\n\n# Repository Structure\n' in found
    assert system_messages(Conversation.of([raw]).system, ()) == ((raw,), ())


@pytest.mark.parametrize(("content", "lead"), [("s", "\n\n"), ([], "\n\n"), ("", ""), (7, "")])
def test_what_parts_the_map_from_the_system_prompt_belongs_to_the_map(content: object, lead: str) -> None:
    _, found = system_messages(conversation_of(system(content)).system, ADDED)

    assert [one.lead for one in found] == [lead]
    assert [one.lead for one in system_messages((), ADDED)[1]] == [""]


@pytest.mark.parametrize("raw", [b"7", b'{"role":"system","content":[1,}', b'{"role":"system"}'])
def test_what_is_no_message_stays_as_it_is(raw: bytes) -> None:
    found, _ = system_messages((Turn.of(raw),), ADDED)

    assert found[0] == raw
    assert len(found) == 2


def test_the_system_section_holds_the_clients_messages() -> None:
    found = turns_section(Kind.SYSTEM, conversation_of(system("a"), system("b")).system, range(2))

    assert found is not None
    assert [(item.key, orjson.loads(item.raw)) for item in found.items] == [
        ("system:0", system("a")),
        ("system:1", system("b")),
    ]
    assert turns_section(Kind.SYSTEM, (), ()) is None
