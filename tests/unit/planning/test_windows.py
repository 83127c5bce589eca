"""Requests are fitted to the windows of their models, and a model's own count of tokens is learnt."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from proxy.core.providers import OPENAI
from proxy.core.reasons import Edit
from proxy.core.recognition.pieces import Recogniser
from proxy.core.request.reader import RequestReader
from proxy.core.request.tokens import bytes_over_four
from proxy.core.response.usage import Usage
from proxy.core.window.fitted import Fitted
from proxy.core.window.parts import WindowParts
from proxy.core.window.profile import CapabilityProfile
from proxy.errors import ContextTooLong, InvalidRequest
from proxy.planning.model_facts import ModelFacts
from proxy.planning.windows import ContextWindows
from proxy.ports import Deployment, Transport
from tests.talk import assistant, calling, result, system, tool, user
from tests.windows import CHAT, TEXTS, Body, text_of

DEPLOYMENT = Deployment("m", "m", Transport.EMBEDDED, OPENAI)
WINDOW = replace(CHAT, window_tokens=10_000, output_tokens=1_000, margin_tokens=0)


class Client:
    """Fits one request after another, with the memory of one proxy."""

    def __init__(self, facts: ModelFacts | None = None, recognisers: tuple[Recogniser, ...] = ()) -> None:
        self.reader = RequestReader(bytes_over_four, recognisers, 1 << 24)
        self.windows = ContextWindows(self.reader, facts or ModelFacts(), TEXTS)

    def fitted(
        self,
        messages: list[Body],
        profile: CapabilityProfile = WINDOW,
        parts: WindowParts | None = None,
        deployment: Deployment = DEPLOYMENT,
        *,
        extra_tokens: int = 0,
        scale: float = 1.0,
        scope: str = "",
        **members: Any,
    ) -> Fitted:
        return self.fitted_body(
            json.dumps({"model": "m", "messages": messages, **members}).encode(),
            profile,
            parts,
            deployment,
            extra_tokens=extra_tokens,
            scale=scale,
            scope=scope,
        )

    def fitted_body(self, body: bytes, *args: Any, **named: Any) -> Fitted:
        return asyncio.run(self.windows.fitted(self.reader.parse(body), *args, **named))


def talk(turns: int, tokens: int = 500) -> list[Body]:
    """Turns of so many tokens, and a question."""
    found: list[Body] = [system("rules")]
    for number in range(turns):
        found += [user(text_of(tokens // 2, f"q{number}")), assistant(text_of(tokens // 2, f"a{number}"))]
    return [*found, user("now?")]


def prompt(fitted: Fitted) -> int:
    return fitted.sizes["prompt"]


def test_a_request_whose_window_nobody_knows_is_left_as_it_is() -> None:
    found = Client().fitted(talk(40), CHAT)
    assert json.loads(found.body)["messages"] == talk(40)
    assert (found.edits, "window" in found.sizes) == ({}, False)


def test_the_window_is_that_of_the_model_where_the_profile_names_none() -> None:
    facts = ModelFacts(limits=lambda deployment: (10_000, 500))
    found = Client(facts).fitted(talk(40), CHAT)
    assert found.edits[Edit.WINDOW_TRIMMED] > 0
    assert (found.sizes["window"], found.sizes["output"], found.sizes["margin"]) == (10_000, 4_096, 256)
    # An answer cannot be longer than the model writes.
    assert Client(facts).fitted(talk(2), CHAT, max_tokens=9_000).sizes["output"] == 500


def test_the_answer_that_the_request_asks_for_is_kept_free() -> None:
    client = Client()
    assert prompt(client.fitted(talk(16), max_tokens=1_000)) > 8_000
    short = client.fitted(talk(16), max_completion_tokens=5_000)
    assert prompt(short) <= 5_000
    assert short.sizes["output"] == 5_000
    with pytest.raises(ContextTooLong):
        client.fitted([user("q")], max_tokens=10_000)


def test_tools_and_texts_of_the_operator_take_room() -> None:
    client = Client()
    tools = [tool(f"t{n}", description=text_of(100)) for n in range(40)]
    full = client.fitted(talk(30))
    less = client.fitted(talk(30), tools=tools)
    assert less.sizes["tools"] > 4_000
    assert less.edits[Edit.WINDOW_TRIMMED] > full.edits[Edit.WINDOW_TRIMMED]
    assert prompt(client.fitted(talk(30), extra_tokens=4_000)) <= 9_000


def test_all_other_bytes_of_the_body_stay() -> None:
    messages = json.dumps(talk(40)).encode()
    body = b'{ "top_p": 1.0e0,\n"messages":' + messages + b', "model":"m", "x":"\\u00e9"}'
    found = Client().fitted_body(body, WINDOW, None, DEPLOYMENT)
    assert found.body.startswith(b'{ "top_p": 1.0e0,\n"messages":[{"role": "system"')
    assert found.body.endswith(b', "model":"m", "x":"\\u00e9"}')


def test_a_refused_request_is_fitted_to_less() -> None:
    client = Client()
    whole, half = client.fitted(talk(20)), client.fitted(talk(20), scale=0.5)
    assert prompt(half) <= 4_500 < prompt(whole)
    # Where nobody knows the window, what was refused was too large.
    unknown = client.fitted(talk(20), CHAT, scale=0.5)
    assert prompt(unknown) <= prompt(client.fitted(talk(20), CHAT)) / 2


def report(client: Client, counted: int, reported: int, times: int = 1, **named: Any) -> None:
    for _ in range(times):
        found = Fitted(b"", counted_tokens=counted)
        client.windows.settled(DEPLOYMENT, found, Usage(reported, 1, **named), scope="one")


def test_a_model_that_counts_more_tokens_gets_fewer_messages() -> None:
    client = Client()
    before = client.fitted(talk(30), scope="one")
    report(client, 10_000, 14_900)
    after = client.fitted(talk(30), scope="one")
    assert after.edits[Edit.WINDOW_TRIMMED] > before.edits[Edit.WINDOW_TRIMMED]
    assert after.counted_tokens * 1.5 <= 9_000
    assert after.counted_tokens * 1.5 <= prompt(after) + 1 <= 9_001


def test_what_one_scope_or_model_teaches_changes_nothing_for_another() -> None:
    client = Client()
    before = client.fitted(talk(30), scope="two")
    report(client, 10_000, 14_900, times=20)
    assert client.fitted(talk(30), scope="two") == before
    other = replace(DEPLOYMENT, model="other")
    assert client.fitted(talk(30), deployment=other, scope="one") == before


def test_an_estimated_usage_and_a_prompt_with_images_teach_nothing() -> None:
    client = Client()
    before = client.fitted(talk(30), scope="one")
    report(client, 10_000, 14_900, estimated=True)
    client.windows.settled(DEPLOYMENT, Fitted(b"", counted_tokens=10_000), None, scope="one")
    image = [{"type": "image_url", "image_url": {"url": "data:x"}}]
    assert client.fitted([user(image)]).counted_tokens == 0
    client.windows.settled(DEPLOYMENT, client.fitted([user(image)]), Usage(14_900, 1), scope="one")
    assert client.fitted(talk(30), scope="one") == before


@pytest.mark.parametrize("messages", [b"[1]", b'[{"role":"user","content":7}]', b'[{"content":"a"}]'])
def test_messages_that_cannot_be_read_pass_as_they_are_and_parts_are_not_lost(messages: bytes) -> None:
    body = b'{"model":"m","messages":' + messages + b"}"
    assert Client().fitted_body(body, WINDOW, WindowParts(profile="chat"), DEPLOYMENT).body == body
    with pytest.raises(InvalidRequest) as refused:
        Client().fitted_body(body, WINDOW, WindowParts(prefix="p"), DEPLOYMENT)
    assert refused.value.code == "unreadable_messages"


def test_a_body_without_messages_is_refused_as_ever() -> None:
    with pytest.raises(InvalidRequest) as refused:
        Client().fitted_body(b'{"model":"m"}', WINDOW, None, DEPLOYMENT)
    assert refused.value.code == "missing_messages"


class Broken:
    name, priority = "broken", 0

    def recognise(self, role: str, text: str) -> None:
        raise ZeroDivisionError


def test_a_surprise_of_the_proxys_own_sends_the_request_as_it_came() -> None:
    found = Client(recognisers=(Broken(),)).fitted(talk(40))
    assert json.loads(found.body)["messages"] == talk(40)


def test_a_request_of_a_megabyte_is_fitted_as_a_small_one_is() -> None:
    big = [system("rules"), *(user(text_of(30_000, f"q{n}")) for n in range(12)), user("now?")]
    profile = replace(WINDOW, window_tokens=100_000)
    found = Client().fitted(big, profile)
    assert prompt(found) <= 99_000
    assert json.loads(found.body)["messages"][-1] == user("now?")


def test_a_tool_loop_longer_than_the_window_keeps_its_task_and_its_newest_group() -> None:
    loop = [turn for n in range(40) for turn in (calling(f"c{n}"), result(f"c{n}", text_of(400)))]
    found = json.loads(Client().fitted([user("task"), *loop]).body)["messages"]
    assert found[0] == user("task")
    assert found[-2:] == loop[-2:]
    assert found[1]["tool_calls"][0]["id"] == found[2]["tool_call_id"]
