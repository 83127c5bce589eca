"""Context windows with the real SDK and the whole app: who gets which budget, what is sent, and what is told of it."""

import itertools
import json
import logging
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import openai
import pytest

from proxy.protocol.request.tokens import bytes_over_four
from proxy.teams.authentication import declared_id, digest_of
from tests.doubles import serving
from tests.e2e.provider import Reply, Scripted, completion, replies
from tests.prompt_files import write_prompts
from tests.signed_thinking import signed
from tests.whole import whole

MODELS = """
model_list:
  - model_name: m
    litellm_params: {{model: openai/m, api_base: "{url}/v1", api_key: sk-provider}}
    model_info: {{mode: {mode}, cache_profile: none{info}}}
  - model_name: other
    litellm_params: {{model: openai/other, api_base: "{url}/v1", api_key: sk-provider}}
    model_info: {{mode: {mode}, cache_profile: none{info}}}
stratiform:
  store: sqlite:spend.sqlite
  prices: {{m: {{input_cost_per_token: 0.001, output_cost_per_token: 0.001}}}}
  teams:
    - {{name: red, keys: [sk-red-0, sk-red-1]}}
    - {{name: blue, keys: [sk-blue]}}
    - {{name: poor, keys: [sk-poor], budget: {{usd: 0.000001}}}}
"""
LEVELS = """
  window:
    models: {{m: of_model}}
    teams: {{blue: of_team, poor: of_model}}
    keys: {{{key}: of_key}}
    allowed: [of_header, of_body]
    profiles:
      of_model: {{capability: chat, window_tokens: 1000, output_tokens: 100, margin_tokens: 0}}
      of_team: {{capability: chat, window_tokens: 2000, output_tokens: 100, margin_tokens: 0}}
      of_key: {{capability: chat, window_tokens: 3000, output_tokens: 100, margin_tokens: 0}}
      of_header: {{capability: chat, window_tokens: 4000, output_tokens: 100, margin_tokens: 0}}
      of_body: {{capability: chat, window_tokens: 5000, output_tokens: 100, margin_tokens: 0}}
"""
NARROW = """
  window:
    models: {m: mine}
    profiles:
      mine: {capability: CAPABILITY, window_tokens: 1000, output_tokens: 100, margin_tokens: 0, MORE}
"""
PROMPTS = """
  prompts: {folders: [./texts], shipped: false, use: [rules, reminder]}
"""
TEXTS = {
    "rules": "---\nid: rules\nposition: system\n---\nFollow the rules.",
    "reminder": "---\nid: reminder\nposition: user_suffix\n---\nBe brief.",
}
LONG = "words that go on " * 3_000


@dataclass
class World:
    """A proxy, the provider behind it, and a client."""

    url: str
    provider: Scripted
    client: openai.OpenAI

    def ask(self, messages: Any, *, model: str = "m", key: str = "sk-red-0", section: Any = None, **more: Any) -> Any:
        """The messages that the provider got."""
        headers = {f"x-stratiform-{name}": more.pop(name) for name in ("profile", "mode") if name in more}
        asked: list[Any] = [user(messages)] if isinstance(messages, str) else messages
        self.answer = self.client.with_options(api_key=key).chat.completions.with_raw_response.create(
            model=model,
            messages=asked,
            extra_headers=headers,
            extra_body={"stratiform": {"window": section}} if section is not None else {},
            **more,
        )
        parsed: Any = self.answer.parse()
        self.said: list[Any] = list(parsed) if more.get("stream") else [parsed]
        sent = self.provider.seen[-1].json
        assert "stratiform" not in sent
        return sent["messages"]

    def edited(self) -> dict[str, float]:
        """The counted edits by their names."""
        found = re.findall(r'^stratiform_edited_messages_total\{edit="([\w-]+)"\} (\S+)$', self.metrics(), re.MULTILINE)
        return {name: float(count) for name, count in found if float(count)}

    def metrics(self) -> str:
        return httpx.get(f"{self.url}/metrics").text


@contextmanager
def world(
    folder: Path, section: str, *given: Reply, mode: str = "tier", prompts: str = "", window: str = ""
) -> Iterator[World]:
    write_prompts(folder / "texts", TEXTS)
    # Without usage: what a provider reports would change how many tokens the proxy thinks that a text has.
    plain = {name: value for name, value in completion().items() if name != "usage"}
    provider = Scripted(*(given or (replies(plain),)))
    with serving(provider) as url:
        text = MODELS.format(url=url, mode=mode, info=f", {window}" if window else "").replace(
            "sqlite:", f"sqlite:{folder}/"
        )
        with (
            whole(folder, text + section + prompts) as proxy,
            openai.OpenAI(base_url=f"{proxy}/v1", api_key="-", max_retries=0) as client,
        ):
            yield World(proxy, provider, client)


def narrow(capability: str = "chat", more: str = "") -> str:
    return NARROW.replace("CAPABILITY", capability).replace(", MORE", f", {more}" if more else "")


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def turns(count: int, words: int = 20) -> list[Any]:
    """A conversation that ends in a user message."""
    found: list[Any] = []
    for number in range(count):
        found += [user(f"question {number} " + "and more " * words), said(f"answer {number} " + "so it is " * words)]
    return [*found, user("and now?")]


counted = bytes_over_four


def messages_bytes(body: bytes) -> str:
    """The array of messages as it was sent, without its end."""
    text = body.decode()
    start = text.index('"messages":') + len('"messages":')
    _, end = json.JSONDecoder().raw_decode(text, start)
    return text[start : end - 1]


def stored(folder: Path) -> list[str]:
    """All that the store holds."""
    with sqlite3.connect(f"file:{folder}/spend.sqlite?mode=ro", uri=True) as connection:
        return list(connection.iterdump())


# --- who gets which budget


def test_each_level_names_a_profile_and_the_nearest_to_the_request_counts(tmp_path: Path) -> None:
    levels = LEVELS.format(key=declared_id(digest_of("sk-red-1")))
    asked: list[tuple[dict[str, Any], int | None]] = [
        ({}, 1000),
        ({"model": "other"}, None),
        ({"key": "sk-red-1"}, 3000),
        ({"key": "sk-red-1", "model": "other"}, 3000),
        ({"key": "sk-blue"}, 2000),
        ({"key": "sk-blue", "model": "other"}, 2000),
        ({"profile": "of_header"}, 4000),
        ({"profile": "of_header", "model": "other"}, 4000),
        ({"section": {"profile": "of_body"}}, 5000),
        ({"section": {"profile": "of_body"}, "profile": "of_header"}, 5000),
        ({"key": "sk-blue", "section": {"profile": "of_body"}}, 5000),
    ]
    with world(tmp_path, levels) as there:
        for terms, window in asked:
            if window is None:
                assert there.ask(LONG, **terms) == [user(LONG)]
                continue
            for stream in (False, True):
                with pytest.raises(
                    openai.BadRequestError, match=f"maximum context length is {window} tokens"
                ) as caught:
                    there.ask(LONG, stream=stream, **terms)
                assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")
        with pytest.raises(openai.PermissionDeniedError) as refused:
            there.ask("x", profile="of_team")
        assert refused.value.code == "profile_not_allowed"
        assert len(there.provider.seen) == 1


@pytest.mark.parametrize("value", ["2500", "null"])
def test_of_the_profiles_window_and_the_models_the_smaller_one_counts(tmp_path: Path, value: str) -> None:
    section = narrow().replace("window_tokens: 1000", f"window_tokens: {value}")
    told = pytest.raises(openai.BadRequestError, match="maximum context length is 1800 tokens")
    with world(tmp_path, section, window="max_input_tokens: 1800") as there, told:
        there.ask(LONG)


# --- a conversation over a small window


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "prompts"), [("tier", PROMPTS), ("observe", ""), ("passthrough", PROMPTS)])
def test_sixty_turns_over_a_small_window_keep_their_prefix_between_cuts(
    tmp_path: Path, mode: str, prompts: str
) -> None:
    talk = turns(60, words=6)
    with world(tmp_path, narrow(), mode=mode, prompts=prompts) as there:
        sent = []
        for number in range(60):
            asked = talk[: 2 * number + 1]
            messages = there.ask(asked)
            own = [message for message in messages if message["role"] != "system"]
            assert own[0]["role"] == "user"
            if prompts:
                assert messages[0] == {"role": "system", "content": "Follow the rules."}
                assert own[-1]["content"] == f"{asked[-1]['content']}\n\nBe brief."
                own[-1] = asked[-1]
            assert own == asked[-len(own) :]
            assert sum(4 + counted(one["content"]) for one in messages) <= 900
            sent.append(messages_bytes(there.provider.seen[-1].body))
        cuts = 0
        for before, after in itertools.pairwise(sent):
            # The operator's text behind the newest message is not there any more when this message is an older one.
            kept = before[: before.rindex('{"role"')] if prompts else before
            cuts += not after.startswith(kept)
        assert 3 <= cuts <= 10
        trimmed = there.edited()["window-trimmed"]
        assert trimmed == sum(2 * number + 1 - one.count('"role":"') + bool(prompts) for number, one in enumerate(sent))


# --- what cannot fit


@pytest.mark.parametrize("stream", [False, True])
def test_a_newest_message_that_is_too_long_is_refused_before_anything_happens(tmp_path: Path, stream: bool) -> None:
    with world(tmp_path, narrow(), prompts=PROMPTS) as there:
        assert httpx.get(f"{there.url}/healthz").status_code == 200
        before = stored(tmp_path)
        for key in ("sk-red-0", "sk-poor"):
            with pytest.raises(openai.BadRequestError) as caught:
                there.ask([*turns(3), said("yes"), user(LONG)], key=key, stream=stream)
            error = caught.value
            assert (error.code, error.param, error.type) == (
                "context_length_exceeded",
                "messages",
                "invalid_request_error",
            )
            assert "900" in error.message or "tokens" in error.message
            assert "words that go on" not in error.message
            assert "x-stratiform-edits" not in error.response.headers
        assert (there.provider.seen, there.edited()) == ([], {})
        assert stored(tmp_path) == before
        with pytest.raises(openai.RateLimitError):
            there.ask("short", key="sk-poor")


# --- parts


def test_a_request_without_a_user_message_gets_one_for_its_parts(tmp_path: Path) -> None:
    with world(tmp_path, narrow("edit")) as there:
        sent = there.ask(
            [{"role": "system", "content": "S"}], section={"instruction": "rename it", "selection": "a = 1"}
        )
    content = "Selected text:\na = 1\n\nInstruction:\nrename it"
    assert sent == [{"role": "system", "content": "S"}, user(content)]


def test_virtual_files_are_one_object_in_the_newest_message_and_the_active_one_stays(tmp_path: Path) -> None:
    files = [{"id": f"f{n}.py", "content": f"x = {n}\n" * 150, "active": n == 2} for n in range(6)]
    talk = turns(2)
    with world(tmp_path, narrow("chat_ops")) as there:
        sent = there.ask(talk, section={"virtual_files": files})
        assert sent[:-1] == talk[-len(sent) : -1]
        found = json.loads(sent[-1]["content"])
        assert (found["kind"], found["schema_version"], found["message"]) == ("virtual_files", 1, "and now?")
        assert found["active_file"] == "f2.py"
        shown, omitted = [file["id"] for file in found["virtual_files"]], found["omitted_virtual_file_ids"]
        assert shown[0] == "f2.py"
        assert [*shown, *omitted] == ["f2.py", "f0.py", "f1.py", "f3.py", "f4.py", "f5.py"]
        assert omitted
        assert all(file["content"] == files[int(file["id"][1])]["content"] for file in found["virtual_files"])
        edits = there.edited()
        assert edits["window-shortened"] == len(omitted)
        assert edits["window-trimmed"] == len(talk) - len(sent)
        with pytest.raises(openai.BadRequestError):
            there.ask(talk, section={"virtual_files": [{**files[2], "content": LONG}]})


def test_parts_are_not_sent_without_a_profile(tmp_path: Path) -> None:
    with world(tmp_path, narrow()) as there:
        with pytest.raises(openai.BadRequestError) as caught:
            there.ask("x", model="other", section={"instruction": "y"})
        assert (caught.value.code, caught.value.param) == ("missing_field", "stratiform.window.profile")
        assert there.provider.seen == []


# --- what is told


def test_edits_are_told_in_the_header_and_the_log_line_and_counted_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="stratiform")
    refusal = {"error": {"message": "too long", "code": "context_length_exceeded"}}
    with world(
        tmp_path, narrow(more="over_budget: retry"), replies(refusal, 400), replies(completion()), prompts=PROMPTS
    ) as there:
        sent = there.ask(turns(20))
        first, second = (seen.json["messages"] for seen in there.provider.seen)
        assert len(first) > len(second) == len(sent)
        assert there.answer.headers["x-stratiform-edits"] == "prompts-composed, window-trimmed"
        assert there.edited() == {"prompts-composed": 1, "window-trimmed": 41 - (len(sent) - 1)}
    (line,) = [record.getMessage() for record in caplog.records if " edits=" in record.getMessage()]
    assert " edits=prompts-composed,window-trimmed " in line
    assert "question" not in caplog.text


def test_a_window_says_that_it_cut_in_front_of_signed_thinking(tmp_path: Path) -> None:
    talk = signed({"messages": turns(20)})["messages"]
    with world(tmp_path, narrow()) as there:
        assert len(there.ask(talk)) < len(talk)
        assert there.answer.headers["x-stratiform-edits"] == "window-trimmed, signed-front"
        there.ask(talk[-3:])
        assert "x-stratiform-edits" not in there.answer.headers
