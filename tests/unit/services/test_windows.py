"""Requests are fitted to their windows, as the proxy or the replay sends them, and read beside the event loop."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from proxy.engine.ports import ComposedRequest
from proxy.kit.errors import ContextTooLong, InvalidRequest
from proxy.kit.modes import Edit
from proxy.kit.tasks import Aside
from proxy.models import Deployment, Transport
from proxy.prompts.window import Capability, CapabilityProfile, WindowParts
from proxy.prompts.window.fitting import Fitted
from proxy.protocol.providers import ANTHROPIC, OPENAI, CacheProfile
from proxy.protocol.recognition import Recogniser
from proxy.protocol.request import Inset
from proxy.protocol.request.reader import RequestReader
from proxy.protocol.request.tokens import Encode, bytes_over_four, quick
from proxy.protocol.response.usage import Usage
from proxy.services import ModelFacts, local_encode
from proxy.services.windows import ContextWindows
from tests.talk import assistant, calling, result, system, text_part, tool, user
from tests.window_replay import BY_TOKENS, TURNS, Replay
from tests.windows import CHAT, TEXTS, Body, Watched, text_of

DEPLOYMENT = Deployment("m", "m", Transport.EMBEDDED, OPENAI)
NO_INSET = Inset()
WINDOW = replace(CHAT, window_tokens=10_000, output_tokens=1_000, margin_tokens=0)


class Client:
    """Fits one request after another, with the memory of one proxy."""

    def __init__(self, facts: ModelFacts | None = None, recognisers: tuple[Recogniser, ...] = ()) -> None:
        self.reader = RequestReader(bytes_over_four, recognisers, 1 << 24)
        self.windows = ContextWindows(self.reader, bytes_over_four, facts or ModelFacts(), TEXTS)

    def fitted(
        self,
        messages: list[Body],
        profile: CapabilityProfile = WINDOW,
        parts: WindowParts | None = None,
        deployment: Deployment = DEPLOYMENT,
        *,
        inset: Inset = NO_INSET,
        scale: float = 1.0,
        scope: str = "",
        **members: Any,
    ) -> Fitted:
        return self.fitted_body(
            json.dumps({"model": "m", "messages": messages, **members}).encode(),
            profile,
            parts,
            deployment,
            inset=inset,
            scale=scale,
            scope=scope,
        )

    def fitted_body(
        self,
        body: bytes,
        profile: CapabilityProfile,
        parts: WindowParts | None = None,
        deployment: Deployment = DEPLOYMENT,
        *,
        inset: Inset = NO_INSET,
        **named: Any,
    ) -> Fitted:
        composed = ComposedRequest(profile=profile, parts=parts, inset=inset)
        return asyncio.run(self.windows.fitted(self.reader.parse(body), composed, deployment, **named))


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
    assert prompt(client.fitted(talk(30), inset=Inset(text_of(4_000)))) <= 9_000


DATA = "iVBORw0KGgo" * 20_000
IMAGES = [
    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
    {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": DATA}},
    {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{DATA}"}},
]


@pytest.mark.parametrize("image", IMAGES)
def test_the_bytes_of_an_image_take_no_room_wherever_it_stands(image: Body) -> None:
    shot, plain = [text_part("the screen"), image], calling("c")
    nested = {"type": "tool_result", "tool_use_id": "c", "content": shot}
    for looked in ([user(shot)], [plain, result("c", shot)], [plain, user([nested])]):
        found = Client().fitted([*talk(12), *looked])
        assert (found.edits, found.counted_tokens) == ({}, 0)
        assert prompt(found) < 8_000


@pytest.mark.parametrize("source", [{"data": text_of(9_000)}, {"content": [text_part(text_of(9_000))]}])
def test_a_document_that_is_given_as_text_takes_the_room_of_its_text(source: Body) -> None:
    document = {"type": "document", "source": {"type": "text" if "data" in source else "content", **source}}
    with pytest.raises(ContextTooLong):
        Client().fitted([user([document, text_part("What does it say?")])])


THOUGHT = text_of(300)
THOUGHTS = [
    {"reasoning_content": THOUGHT},
    {"reasoning": THOUGHT, "reasoning_details": [{"type": "reasoning.text", "text": THOUGHT, "signature": DATA}]},
    {"reasoning_content": THOUGHT, "thinking_blocks": [{"type": "thinking", "thinking": THOUGHT, "signature": DATA}]},
    {"function_call": {"name": "f", "arguments": THOUGHT}, "reasoning_content": None},
]


@pytest.mark.parametrize("thought", THOUGHTS)
def test_the_thinking_that_a_client_sends_back_takes_the_room_of_one_of_its_forms(thought: Body) -> None:
    loop = [turn for n in range(40) for turn in ({**calling(f"c{n}"), **thought}, result(f"c{n}", "ok"))]
    found = Client().fitted([user("task"), *loop])
    left = len(json.loads(found.body)["messages"]) // 2
    assert 18 <= left <= 26
    assert 300 * left < prompt(found) < 400 * left


def test_the_schemas_of_functions_and_of_the_answer_take_room_as_tools_do() -> None:
    schema = {"type": "object", "properties": {f"p{n}": {"description": text_of(100)} for n in range(100)}}
    answer = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    for members in ({"response_format": answer}, {"functions": [{"name": "f", "parameters": schema}]}):
        with pytest.raises(ContextTooLong, match="in tools"):
            Client().fitted([user("q")], **members)


CODE = WindowParts(prefix="def f(x):\n" * 2_000, suffix="return 1\n" * 900)


class Exact:
    """Fits requests as the proxy does: the planner estimates, and windows are counted with the tokenizer."""

    def __init__(self, encode: Encode, aside: Aside | None = None) -> None:
        self.reader = RequestReader(quick(encode), (), 1 << 24)
        self.windows = ContextWindows(self.reader, encode, ModelFacts(), TEXTS, aside)

    def fitted(self, messages: list[Body], window: int, parts: WindowParts | None = None, **named: Any) -> Fitted:
        body = json.dumps({"model": "m", "messages": messages}).encode()
        profile = replace(WINDOW, window_tokens=window, output_tokens=0)
        deployment = named.pop("deployment", DEPLOYMENT)
        composed = ComposedRequest(profile=profile, parts=parts, inset=named.pop("inset", NO_INSET))
        return asyncio.run(self.windows.fitted(self.reader.parse(body), composed, deployment, **named))


def sent_tokens(fitted: Fitted) -> int:
    """The tokens of what is sent, counted here."""
    encode = local_encode()
    return sum(encode(message["content"]) + 4 for message in json.loads(fitted.body)["messages"])


def test_repetitive_code_of_which_estimates_see_half_is_cut_by_the_models_own_count() -> None:
    encode = local_encode()
    found = Exact(encode).fitted([user("go on")], 4_096, CODE)
    assert 3_500 < sent_tokens(found) <= 4_096
    assert sent_tokens(found) == found.counted_tokens
    # The estimate alone would have let the whole window be overrun.
    estimated = Exact(quick(encode)).fitted([user("go on")], 4_096, CODE)
    assert sent_tokens(estimated) > 4_096


def test_texts_of_the_operator_and_the_models_reminder_are_counted_too() -> None:
    exact = Exact(local_encode())
    talk = [user("a " * 500), assistant("b " * 500), user("q")]
    alone = exact.fitted(talk, 1_100)
    assert alone.edits == {}
    text = "1 2 3 4 5 6 " * 10
    for named in ({"inset": Inset(text, "")}, {"deployment": replace(DEPLOYMENT, reminder=text)}):
        found = exact.fitted(talk, 1_100, **named)
        assert found.edits == {Edit.WINDOW_TRIMMED: 2}
        assert found.sizes["extra"] >= 120


class Counted:
    """A tokenizer that remembers how long the texts were that it was given."""

    def __init__(self) -> None:
        self.chars: list[int] = []

    def __call__(self, text: str) -> int:
        self.chars.append(len(text))
        return bytes_over_four(text)


def test_each_text_is_counted_once_and_a_request_that_must_fit_not_at_all() -> None:
    encode = Counted()
    windows = Exact(bytes_over_four)
    windows.windows = ContextWindows(windows.reader, encode, ModelFacts(), TEXTS)
    messages = [turn for n in range(10) for turn in (user(text_of(250, f"q{n}")), assistant(text_of(250, f"a{n}")))]
    messages.append(user("now?"))
    body_bytes = len(json.dumps({"model": "m", "messages": messages}))
    small = windows.fitted(messages, body_bytes + 1_000)
    assert (encode.chars, small.counted_tokens) == ([], 0)
    windows.fitted(messages, 6_000)
    assert encode.chars.count(1_000) == 20
    windows.fitted([*messages, assistant(text_of(500)), user("and now?")], 6_000)
    assert encode.chars.count(1_000) == 20
    assert encode.chars.count(2_000) == 1


def test_large_new_texts_are_counted_beside_the_event_loop_and_known_ones_at_once() -> None:
    aside = Watched()
    exact = Exact(bytes_over_four, aside)
    messages = [user(text_of(10_000, "a")), assistant("b"), user(text_of(10_000, "c"))]
    exact.fitted(messages, 21_000)
    assert len(aside.sizes) == 1
    exact.fitted([*messages, assistant("d"), user("e")], 21_000)
    assert len(aside.sizes) == 1
    exact.fitted(messages, 21_000, WindowParts(prefix=text_of(10_000)))
    assert len(aside.sizes) == 2
    aside.close()


@pytest.mark.parametrize(("turns", "parts"), [(2_500, 1), (1_800, 3)])
def test_a_chat_of_more_messages_or_parts_than_are_planned_is_fitted_like_any_other(turns: int, parts: int) -> None:
    long = [user([text_part("word " * 8)] * parts) if one["role"] == "user" else one for one in talk(turns, 20)]
    client, cuts = Client(), set[int]()
    for _ in range(2):
        found = client.fitted(long)
        out = json.loads(found.body)["messages"]
        assert [out[0], *out[1:]] == [long[0], *long[1 - len(out) :]]
        assert 6_000 < prompt(found) <= 9_000
        cuts.add(found.edits[Edit.WINDOW_TRIMMED])
        long = [*long, assistant("yes"), user("and now?")]
    assert len(cuts) == 1


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
    report(client, 10_000, 10_000)
    client.windows.settled(DEPLOYMENT, Fitted(b"", counted_tokens=10_000), Usage(10_000, 1), scope="two")
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


BY_MESSAGES = CapabilityProfile("chat", Capability.CHAT, tail_messages=60)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "is_loop", "cache"),
    [(BY_TOKENS, False, ANTHROPIC), (BY_TOKENS, True, OPENAI), (BY_MESSAGES, False, ANTHROPIC)],
    ids=["conversation", "tool-loop", "60-messages"],
)
def test_a_full_window_keeps_nine_tenths_of_the_hit_rate_and_the_session_is_known(
    profile: CapabilityProfile, is_loop: bool, cache: CacheProfile
) -> None:
    replay = Replay(cache, profile)
    replay.run(is_loop=is_loop)
    first = replay.first_cut
    below, full = replay.hit_rate(0, first), replay.hit_rate(first, TURNS)
    print(f"{cache.name}: {below:.4f} below the window ({first} requests), {full:.4f} at the window")
    assert full >= 0.9 * below
    # A conversation whose front is gone is found by its newest turns: no hint of the client's is needed.
    assert len(replay.sessions) == 1
