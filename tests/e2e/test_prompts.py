"""The operator's prompts with the real SDK: what is configured reaches the model, whatever the client says."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import openai
import orjson
import pytest

from tests.doubles import serving
from tests.e2e.provider import Scripted, completion, replies
from tests.whole import whole

CONFIG = """
model_list:
  - model_name: gpt
    litellm_params: {{model: openai/gpt-5, api_base: {url}/v1, api_key: sk-provider}}
  - model_name: claude
    litellm_params: {{model: openai/claude-sonnet-4-5, api_base: {url}/v1, api_key: sk-provider}}
    model_info: {{cache_profile: anthropic}}
router_settings:
  model_group_alias: {{cheap: gpt}}
stratiform:
  teams:
    - {{name: red, keys: [sk-red]}}
    - {{name: blue, keys: [sk-blue]}}
  prompts:
    folders: [./texts]
    shipped: false
    look_s: 0.1
{prompts}
"""
PROMPTS = """
    models:
      gpt: {use: [rules, before, after]}
    teams:
      blue: {use: [rules], persona: terse, allowed: {personas: ["*"], context: [mission], extras: true}}
"""
FILES = {
    "rules.md": "---\nid: rules\nposition: system\n---\nFollow the rules{% if mission.goal is defined %} of "
    "{{ mission.goal }}{% endif %}.",
    "before.md": "---\nid: before\nposition: user_prefix\n---\nQuestion:",
    "after.md": "---\nid: after\nposition: user_suffix\n---\nAnswer briefly.",
    "terse.md": '---\nid: "persona:terse"\nposition: system\npriority: 5\n---\nFew words.',
    "loud.md": '---\nid: "persona:loud"\nposition: system\npriority: 5\n---\nMany words.',
}


@dataclass
class World:
    """A proxy with prompts, the provider behind it, and clients."""

    url: str
    provider: Scripted
    folder: Path

    def ask(
        self, *messages: Any, model: str = "gpt", key: str = "sk-red", section: Any = None, **headers: str
    ) -> list[Any]:
        """The messages that the provider got."""
        body = {"model": model, "messages": list(messages) or [{"role": "user", "content": "Why?"}]}
        with openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0) as client:
            self.answer = client.chat.completions.with_raw_response.create(
                **body,  # type: ignore[arg-type]
                extra_headers={f"x-stratiform-{name}": value for name, value in headers.items()},
                extra_body={"stratiform": section} if section is not None else {},
            )
        sent = orjson.loads(self.provider.seen[-1].body)
        assert "stratiform" not in sent
        found: list[Any] = sent["messages"]
        return found


@contextmanager
def world(folder: Path, prompts: str = PROMPTS) -> Iterator[World]:
    (folder / "texts").mkdir()
    for name, text in FILES.items():
        (folder / "texts" / name).write_text(text)
    provider = Scripted(replies(completion()))
    with serving(provider) as url, whole(folder, CONFIG.format(url=url, prompts=prompts)) as proxy:
        yield World(proxy, provider, folder)


def text_of(message: Any) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def test_a_model_without_prompts_gets_the_request_as_it_came(tmp_path: Path) -> None:
    with world(tmp_path) as there:
        assert there.ask(model="claude") == [{"role": "user", "content": "Why?"}]
        assert "x-stratiform-prompts" not in there.answer.headers


def test_structured_context_stands_behind_the_operators_text(tmp_path: Path) -> None:
    section = {"files": [{"path": "a.py", "content": "a = 1\n", "selected": True}], "session": "s"}
    with world(tmp_path) as there:
        sent = there.ask({"role": "system", "content": "Own."}, {"role": "user", "content": "Why?"}, section=section)
    texts = [text_of(message) for message in sent]
    assert texts[0].startswith("Follow the rules.\n\nOwn.")
    assert any("a = 1" in text for text in texts)
    assert texts[-1] == "Question:\n\nWhy?\n\nAnswer briefly."


def test_a_section_of_prompts_alone_is_no_structured_context(tmp_path: Path) -> None:
    with world(tmp_path) as there:
        sent = there.ask(model="claude", key="sk-blue", section={"prompts": {"persona": "terse"}})
    assert [text_of(message) for message in sent] == ["Few words.\n\nFollow the rules.", "Why?"]


@pytest.mark.parametrize("own", [[], [{"role": "system", "content": "Own."}]], ids=["none", "own"])
def test_a_client_counts_its_messages_without_the_operators(tmp_path: Path, own: list[Any]) -> None:
    talk = [{"role": role, "content": text} for role, text in (("user", "secret"), ("assistant", "Hm."), ("user", "Q"))]

    def said(index: int) -> dict[str, Any]:
        return {"session": "s", "messages_meta": [{"index": index + len(own), "status": "deleted"}]}

    with world(tmp_path) as there:
        sent = there.ask(*own, *talk, model="claude", key="sk-blue", section=said(0))
        assert [text_of(message) for message in sent[1:]] == ["Hm.", "Q"]
        with pytest.raises(openai.BadRequestError, match=f"names the message {3 + len(own)}, but there is none") as no:
            there.ask(*own, *talk, model="claude", key="sk-blue", section=said(3))
    assert no.value.code == "invalid_index"


def test_tools_and_a_conversation_keep_their_bytes(tmp_path: Path) -> None:
    turns: list[Any] = [
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1.0}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "2"},
    ]  # fmt: skip
    with world(tmp_path) as there:
        sent = there.ask(*turns)
    assert sent[0]["content"] == "Follow the rules."
    assert text_of(sent[1]) == "Question:\n\nOne\n\nAnswer briefly."
    assert sent[2:] == turns[1:]


def test_a_broken_file_keeps_what_was_read_before(tmp_path: Path) -> None:
    with world(tmp_path) as there:
        there.ask()
        version = there.answer.headers["x-stratiform-prompts"]
        (tmp_path / "texts" / "rules.md").write_text("---\nid: rules\nposition: nowhere\n---\nx")
        for _ in range(1_000):
            if 'prompt_reloads_total{outcome="broken"} 1.0' in httpx.get(f"{there.url}/metrics").text:
                break
        else:
            pytest.fail("the file is not looked at")
        assert text_of(there.ask()[0]) == "Follow the rules."
        assert there.answer.headers["x-stratiform-prompts"] == version


def test_a_changed_file_is_in_the_next_requests_without_a_restart(tmp_path: Path) -> None:
    with world(tmp_path) as there:
        there.ask()
        version = there.answer.headers["x-stratiform-prompts"]
        (tmp_path / "texts" / "rules.md").write_text("---\nid: rules\nposition: system\n---\nNew rules.")
        for _ in range(1_000):
            if text_of(there.ask()[0]) == "New rules.":
                break
        assert there.answer.headers["x-stratiform-prompts"] != version
        assert 'prompt_reloads_total{outcome="changed"} 1.0' in httpx.get(f"{there.url}/metrics").text
