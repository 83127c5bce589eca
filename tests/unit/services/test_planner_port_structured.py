"""Structured context beside the event loop: what is slow runs in a thread, and what fails costs its own part only."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from threading import current_thread, main_thread
from typing import Any

import orjson
import pytest

from proxy.app.factories import load_context_texts
from proxy.context import ContextFile, SymbolMap
from proxy.context.session import AssembledChat, AssemblyOptions
from proxy.engine.exchange import Principal
from proxy.engine.telemetry.metrics import Metrics
from proxy.kit.errors import InvalidRequest
from proxy.kit.modes import Mode
from proxy.kit.tasks import Aside
from proxy.protocol.providers import ANTHROPIC
from proxy.protocol.request import parse_body
from proxy.protocol.request.tokens import IMAGE_TOKENS, bytes_over_four
from proxy.protocol.wire.json_body import MOST_ELEMENTS
from proxy.services import ModelFacts
from proxy.services.context_assembler import ContextAssembler
from proxy.services.planner_port import StructuredChats
from tests.doubles import make_deployment


class Watch:
    def __init__(self) -> None:
        self.assemblies: list[str] = []
        self.skipped: dict[str, int] = {}
        self.empty = 0
        self.edits: dict[str, int] = {}
        self.shown: list[tuple[str, str, int]] = []

    def assembled(self, assembly: str) -> None:
        self.assemblies.append(assembly)

    def empty_tiers(self, *, by: int) -> None:
        self.empty += by

    def item_skipped(self, reason: str, *, by: int) -> None:
        self.skipped[reason] = by

    def panels(self, kind: str, state: str, *, by: int) -> None:
        self.shown.append((kind, state, by))


class Names:
    """An index whose block is the path; ``is_broken``: it raises."""

    name, priority = "names", 1

    def __init__(self, *, is_broken: bool = False) -> None:
        self.is_broken = is_broken

    def index(self, files: Sequence[ContextFile], aliases: Mapping[str, str]) -> SymbolMap:
        if self.is_broken:
            raise ZeroDivisionError("the text of the prompt")
        return SymbolMap({file.path: f"{file.path}: symbols" for file in files}, "a legend")


def chats(watch: Any, indexer: Names | None = None, policy: str = "economic") -> StructuredChats:
    assembler = ContextAssembler(load_context_texts(), bytes_over_four, indexer, AssemblyOptions(policy))
    return StructuredChats(assembler, Aside(), watch)


def assemble(subject: StructuredChats, section: dict[str, Any], messages: object = None) -> AssembledChat:
    shown = [{"role": "user", "content": "q"}] if messages is None else messages
    body = orjson.dumps({"model": "m", "messages": shown, "stratiform": section})
    chat = asyncio.run(subject.assemble(parse_body(body), Principal(scope="key"), 0.0))
    chat.kept()
    return chat


FILES = [{"path": "a.py", "content": "a = 1"}, {"path": "b.py", "content": "b = 2", "selected": True}]


def test_unselected_files_are_shown_by_the_symbols_of_the_index() -> None:
    body = assemble(chats(Watch(), Names()), {"files": FILES}).body

    assert b"a.py: symbols" in body
    assert b"a = 1" not in body
    assert b"b.py: symbols" not in body


def test_symbols_of_the_clients_own_are_taken_instead_of_the_index() -> None:
    section = {"files": FILES, "symbols": [{"path": "a.py", "block": "my own block"}]}
    body = assemble(chats(Watch(), Names()), section).body

    assert b"my own block" in body
    assert b"a.py: symbols" not in body


def test_a_client_that_wants_no_map_gets_none() -> None:
    body = assemble(chats(Watch(), Names()), {"files": FILES, "use_repo_map": False, "tree": True}).body

    assert b"symbols" not in body
    assert b"# Repository Files" not in body


def test_an_index_that_fails_costs_the_symbols_only(caplog: pytest.LogCaptureFixture) -> None:
    body = assemble(chats(Watch(), Names(is_broken=True)), {"files": FILES}).body

    assert b"b = 2" in body
    assert "ZeroDivisionError" in caplog.text
    assert "the text of the prompt" not in caplog.text


def test_messages_that_are_no_array_are_refused() -> None:
    with pytest.raises(InvalidRequest) as found:
        assemble(chats(Watch()), {"files": FILES}, messages="q")
    assert found.value.param == "messages"


def test_more_messages_than_are_read_are_refused_by_their_number() -> None:
    with pytest.raises(InvalidRequest) as found:
        assemble(chats(Watch()), {"panels": []}, messages=[{"role": "user", "content": "q"}] * (MOST_ELEMENTS + 1))
    assert (found.value.param, found.value.code) == ("messages", "too_many_items")
    assert str(MOST_ELEMENTS) in str(found.value)
    most = [{"role": "user", "content": "q"}] * MOST_ELEMENTS
    assert assemble(chats(Watch()), {"panels": []}, messages=most).dialogue.conversation.prompt


def test_large_contents_are_assembled_alike() -> None:
    large = [{"path": "a.py", "content": "x = 1\n" * 200_000, "selected": True}]
    chat = assemble(chats(Watch(), Names()), {"files": large})

    assert chat.body.count(b"x = 1\\n") == 200_000


@pytest.mark.parametrize(("count", "is_beside"), [(8, False), (500, True)])
def test_many_panels_are_assembled_and_arranged_beside_the_event_loop_however_short_they_are(
    count: int, is_beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = chats(Watch())
    is_main: list[bool] = []

    def noted(work: Callable[..., Any]) -> Callable[..., Any]:
        def note(*arguments: Any) -> Any:
            is_main.append(current_thread() is main_thread())
            return work(*arguments)

        return note

    monkeypatch.setattr(subject.assembler, "assembled", noted(subject.assembler.assembled))
    monkeypatch.setattr(subject.assembler, "arrange", noted(subject.assembler.arrange))
    chat = assemble(subject, {"panels": [{"id": f"p{n}", "content": "1"} for n in range(count)]})
    asyncio.run(subject.arrange(chat, make_deployment(profile=ANTHROPIC), Mode.TIER))

    assert is_main == [not is_beside] * 2


def test_what_becomes_of_requests_is_told() -> None:
    watch = Watch()
    subject = chats(watch, policy="classic")
    section = {"files": [{"path": "a.bin", "content": None, "selected": True}]}
    asyncio.run(subject.arrange(assemble(subject, section), make_deployment(profile=ANTHROPIC), Mode.TIER))

    assert (watch.assemblies, watch.skipped, watch.empty) == (["tiered"], {"unreadable": 1}, 4)


def test_a_breakdown_tells_what_the_model_can_read_and_write() -> None:
    assembler = ContextAssembler(load_context_texts(), bytes_over_four, None, AssemblyOptions())
    subject = StructuredChats(assembler, Aside(), Metrics(), facts=ModelFacts(lambda deployment: (200_000, 64_000)))
    chat = assemble(subject, {"files": FILES})
    found = asyncio.run(subject.breakdown(chat, make_deployment(name="sonnet"), Mode.TIER))

    assert (found["model"], found["max_input_tokens"], found["max_output_tokens"]) == ("sonnet", 200_000, 64_000)


def test_an_image_in_a_conversation_has_the_tokens_of_an_image_and_not_of_its_data() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0K" * 3_000}}
    talk = [
        {"role": "user", "content": [image]},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "q"},
    ]
    subject = chats(Watch())
    chat = assemble(subject, {"session": "s", "panels": []}, talk)
    found: Any = asyncio.run(subject.breakdown(chat, make_deployment(), Mode.TIER))
    assert IMAGE_TOKENS < found["total_tokens"] < IMAGE_TOKENS + 100
    assert IMAGE_TOKENS < sum(item.tokens for item in chat.reading.history) < IMAGE_TOKENS + 100


def test_panels_are_counted_by_kind_and_by_whether_they_are_the_same() -> None:
    watch = Watch()
    subject = chats(watch)
    panels = [
        {"id": name, "kind": kind, "content": "x"} for name, kind in (("a", "file"), ("b", "file"), ("c", "mine"))
    ]
    assemble(subject, {"session": "s", "panels": [*panels, {"id": "chat", "content": "y"}, {"id": "d", "content": ""}]})
    assert watch.shown == [("file", "new", 2), ("own", "new", 1)]
    watch.shown.clear()
    assemble(subject, {"session": "s", "panels": [panels[0] | {"content": "z"}, *panels[1:]]})
    assert sorted(watch.shown) == [("file", "new", 1), ("file", "same", 1), ("own", "same", 1)]


def test_a_conversation_that_has_never_listed_a_file_gets_no_legend() -> None:
    subject = chats(Watch(), Names())
    panels = [{"id": "todo", "kind": "todo", "header": "Tasks", "content": "- a"}]
    assert b"a legend" not in assemble(subject, {"session": "s", "panels": panels}).body
    assert b"a legend" in assemble(subject, {"session": "s", "panels": panels, "files": FILES}).body
    assert b"a legend" in assemble(subject, {"session": "s", "panels": panels}).body
