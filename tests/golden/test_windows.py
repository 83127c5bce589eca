"""The rules of context window budgets, each with the numbers that were proved in use. Tokens are bytes over four."""

import asyncio
import json
from typing import Any

import pytest

from proxy.engine.ports import ComposedRequest
from proxy.kit.errors import ContextTooLong
from proxy.kit.modes import Edit
from proxy.models import Deployment, Transport
from proxy.prompts.window import (
    BUILT_IN,
    Capability,
    CapabilityProfile,
    PartCaps,
    PartName,
    TokenBudget,
    VirtualFile,
    WindowParts,
    behind_conversation,
    beside_conversation,
    budget_of,
)
from proxy.protocol.providers import OPENAI
from proxy.protocol.request import parse_body
from proxy.protocol.request.reader import RequestReader
from proxy.protocol.request.tokens import bytes_over_four
from proxy.services import ModelFacts
from proxy.services.windows import ContextWindows
from tests.talk import assistant, system, user
from tests.windows import OVERHEAD, TEXTS, fit, sent, text_of

COMPLETION, EDIT, CHAT, CHAT_OPS = (BUILT_IN[name] for name in ("completion", "edit", "chat", "chat_ops"))
COMPLETION_SIZES = {PartName.SYSTEM: 1024, PartName.PREFIX: 2048, PartName.SUFFIX: 512}
EDIT_SIZES = {**COMPLETION_SIZES, PartName.PREFIX: 1024, PartName.SUFFIX: 256, PartName.INSTRUCTION: 128}


def prompt_tokens(profile: CapabilityProfile, window: int | None = None) -> int:
    found = budget_of(profile, window, None)
    assert found is not None
    return found.prompt_tokens


def reduced(
    sizes: dict[PartName, int], caps: PartCaps, budget: int, *, may_shorten_system: bool = True
) -> tuple[dict[str, int], int]:
    beside, left = beside_conversation(sizes, caps, sum(sizes.values()) - budget)
    found, left = behind_conversation(beside, caps, left, may_shorten_system=may_shorten_system)
    return {str(name): tokens for name, tokens in found.items()}, left


def test_the_budget_is_the_window_without_the_answer_and_the_margin_and_never_below_zero() -> None:
    assert budget_of(CHAT, 16_384, None) == TokenBudget(16_384, 4_096, 256, 12_032)
    assert prompt_tokens(COMPLETION) == 3_584 == 1_024 + 2_048 + 512
    assert prompt_tokens(EDIT) == 3_328 == 1_024 + 128 + 896 + 1_024 + 256
    assert prompt_tokens(CHAT, 4_000) == 0


def test_parts_at_their_caps_fill_the_default_budget_to_the_last_token() -> None:
    assert reduced(COMPLETION_SIZES, COMPLETION.caps, 3_584) == (COMPLETION_SIZES, 0)
    sizes = {**EDIT_SIZES, PartName.SELECTION: 896}
    assert reduced(sizes, EDIT.caps, 3_328) == (sizes, 0)


def test_the_suffix_is_shortened_before_the_prefix() -> None:
    found, left = reduced(COMPLETION_SIZES, COMPLETION.caps, prompt_tokens(COMPLETION, 3_072))
    assert (found, left) == ({"system": 1_024, "prefix": 1_536, "suffix": 0}, 0)


def test_the_system_text_is_shortened_last_and_only_where_the_profile_allows_it() -> None:
    budget = prompt_tokens(COMPLETION, 1_024)
    assert budget == 512
    assert reduced(COMPLETION_SIZES, COMPLETION.caps, budget) == ({"system": 512, "prefix": 0, "suffix": 0}, 0)
    found, left = reduced(COMPLETION_SIZES, COMPLETION.caps, budget, may_shorten_system=False)
    assert (found["system"], left) == (1_024, 512)


def test_a_short_part_lends_its_unused_allowance() -> None:
    sizes = {PartName.SYSTEM: 100, PartName.PREFIX: 3_000, PartName.SUFFIX: 100}
    assert reduced(sizes, COMPLETION.caps, 3_584) == (sizes, 0)


def test_a_long_selection_borrows_from_the_suffix_and_then_from_the_prefix() -> None:
    found, left = reduced({**EDIT_SIZES, PartName.SELECTION: 1_000}, EDIT.caps, 3_328)
    assert (found["selection"], found["suffix"], found["prefix"], left) == (1_000, 152, 1_024, 0)


def test_the_selection_is_never_shortened() -> None:
    found, left = reduced({**EDIT_SIZES, PartName.SELECTION: 2_300}, EDIT.caps, 3_328)
    assert (found["selection"], found["suffix"], found["prefix"], found["system"], left) == (2_300, 0, 0, 900, 0)
    _, left = reduced({**EDIT_SIZES, PartName.SELECTION: 2_300}, EDIT.caps, 3_328, may_shorten_system=False)
    assert left == 124


def test_the_prefix_keeps_its_end_and_all_others_keep_their_beginning() -> None:
    parts = WindowParts(prefix="<first>" + text_of(1_000) + "<end>", suffix="<begin>" + text_of(1_000) + "<last>")
    profile = CapabilityProfile("c", Capability.COMPLETION, caps=PartCaps(prefix=300, suffix=300))
    found = sent([user("go on")], fit([user("go on")], 800, parts, profile))[0]["content"]
    assert "<end>\n\nText after:\n<begin>" in found
    assert "<first>" not in found
    assert "<last>" not in found
    assert found.endswith("\n\ngo on")


def test_the_oldest_turns_go_until_the_rest_fits_and_what_is_kept_begins_with_a_user_message() -> None:
    talk = [turn for n in range(10) for turn in (user(text_of(96, f"q{n}")), assistant(text_of(96, f"a{n}")))]
    messages = [system(text_of(96, "s")), *talk, user("now?")]
    found = fit(messages, 1_400)
    out = sent(messages, found)
    assert out[0] == messages[0]
    assert out[1:] == messages[-len(out) + 1 :]
    assert out[1]["role"] == "user"
    assert found.edits == {Edit.WINDOW_TRIMMED: len(messages) - len(out)}


def test_at_most_so_many_messages_of_the_conversation_are_sent() -> None:
    profile = CapabilityProfile("c", Capability.CHAT, tail_messages=60)
    talk = [turn for n in range(40) for turn in (user(f"q{n}"), assistant(f"a{n}"))]
    assert len(sent(talk[:60], fit(talk[:60], 10_000, None, profile))) == 60
    messages = [*talk, user("now?")]
    out = sent(messages, fit(messages, 10_000, None, profile))
    assert len(out) - 1 <= 60
    assert out == messages[-len(out) :]


def test_the_newest_message_may_take_all_but_one_token_of_what_the_system_text_leaves() -> None:
    rules = system(text_of(2_000 - OVERHEAD, "s"))
    budget = prompt_tokens(CHAT, 16_384)
    assert budget - 2_000 == 10_032
    for tokens, fits in ((10_031, True), (10_032, False)):
        found = fit([rules, user(text_of(tokens - OVERHEAD))], budget)
        assert (found.excess_tokens == 0) is fits


def fitted(body: dict[str, Any], profile: CapabilityProfile, window: int) -> object:
    windows = ContextWindows(
        RequestReader(bytes_over_four, (), 1 << 24),
        bytes_over_four,
        ModelFacts(limits=lambda one: (window, None)),
        TEXTS,
    )
    deployment = Deployment("m", "m", Transport.EMBEDDED, OPENAI)
    parsed = parse_body(json.dumps({"model": "m", **body}).encode())
    return asyncio.run(windows.fitted(parsed, ComposedRequest(profile=profile), deployment))


def test_a_newest_message_that_is_too_long_is_refused_with_the_sizes() -> None:
    body = {"messages": [system(text_of(1_996, "s")), user("old"), assistant("old"), user(text_of(11_000))]}
    with pytest.raises(ContextTooLong) as refused:
        fitted(body, CHAT, 16_384)
    error = refused.value
    assert (error.status, error.code, error.param) == (400, "context_length_exceeded", "messages")
    assert error.sizes == {
        "system": 2_000,
        "newest": 11_004,
        "prompt": 13_004,
        "output": 4_096,
        "margin": 256,
        "window": 16_384,
    }
    assert "maximum context length is 16384 tokens" in error.message
    assert "11004 in the newest message" in error.message


FILES = tuple(
    VirtualFile(name, text_of(100, name), name == "entrypoint.txt")
    for name in ("tool.py", "entrypoint.txt", "settings_schema.json", "input_schema.json")
)


def payload(budget: int, files: tuple[VirtualFile, ...] = FILES, text: str = "rename it") -> dict[str, Any]:
    found = fit([user(text)], budget, WindowParts(virtual_files=files), CHAT_OPS)
    value: dict[str, Any] = json.loads(sent([user(text)], found)[0]["content"])
    return value


def test_files_stand_in_the_newest_message_the_active_one_first_then_in_their_order() -> None:
    found = payload(10_000)
    assert list(found) == [
        "kind", "schema_version", "message", "active_file", "virtual_files", "omitted_virtual_file_ids",
    ]  # fmt: skip
    assert (found["message"], found["active_file"]) == ("rename it", "entrypoint.txt")
    names = [file["id"] for file in found["virtual_files"]]
    assert names == ["entrypoint.txt", "tool.py", "settings_schema.json", "input_schema.json"]
    assert found["omitted_virtual_file_ids"] == []


def test_the_files_of_the_lowest_priority_go_until_the_payload_fits() -> None:
    found = payload(330)
    assert [file["id"] for file in found["virtual_files"]] == ["entrypoint.txt", "tool.py"]
    assert found["omitted_virtual_file_ids"] == ["settings_schema.json", "input_schema.json"]


def test_an_active_file_that_does_not_fit_alone_makes_the_request_too_long() -> None:
    found = fit([user("rename it")], 120, WindowParts(virtual_files=FILES), CHAT_OPS)
    assert found.excess_tokens > 0


def test_without_an_active_file_the_first_one_is() -> None:
    files = tuple(VirtualFile(file.id, file.content) for file in FILES)
    assert payload(10_000, files)["active_file"] == "tool.py"


def test_the_payload_is_compact_and_keeps_letters_that_are_not_ascii() -> None:
    found = fit([user("größer")], 10_000, WindowParts(virtual_files=(VirtualFile("ä", "ü"),)), CHAT_OPS)
    assert sent([user("größer")], found)[0]["content"] == (
        '{"kind":"virtual_files","schema_version":1,"message":"größer","active_file":"ä",'
        '"virtual_files":[{"id":"ä","content":"ü"}],"omitted_virtual_file_ids":[]}'
    )


def test_earlier_turns_have_no_files() -> None:
    talk = [user("one"), assistant("1"), user("two")]
    out = sent(talk, fit(talk, 10_000, WindowParts(virtual_files=FILES), CHAT_OPS))
    assert out[:2] == talk[:2]


def test_a_summary_stands_in_front_of_the_conversation_and_is_shortened_behind_it() -> None:
    talk = [user(text_of(196)), assistant(text_of(196)), user("now?")]
    parts = WindowParts(summary="<" + text_of(300))
    out = sent(talk, fit(talk, 2_000, parts))
    assert out[0]["content"].startswith("[History Summary]\n<")
    assert (out[1]["role"], out[2:]) == ("assistant", talk)
    assert sent(talk, fit(talk, 400, parts))[0]["content"] == out[0]["content"]
    short = sent(talk, fit(talk, 200, parts))
    assert [message["role"] for message in short] == ["user", "assistant", "user"]
    assert out[0]["content"].startswith(short[0]["content"])
    assert short[0] != out[0]
