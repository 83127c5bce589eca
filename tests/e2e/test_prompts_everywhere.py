"""The operator's texts and the window hold for Azure's client, and for a session that meets two processes one after
another."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.doubles import serving
from tests.e2e.provider import Reply, Scripted, completion, replies
from tests.fidelity.checker import check
from tests.prompt_files import write_prompts
from tests.whole import whole

CONFIG = """
model_list:
  - model_name: claude
    litellm_params: {{model: openai/claude-sonnet-4-5, api_base: "{url}/v1", api_key: sk-provider}}
    model_info: {{cache_profile: anthropic}}
  - model_name: own
    litellm_params: {{model: azure/gpt-own, api_base: "{url}", api_key: sk-provider, api_version: 2024-06-01}}
    model_info: {{transport: http}}
  - model_name: other
    litellm_params: {{model: anthropic/claude-sonnet-4-5, api_base: "{url}", api_key: sk-provider}}
    model_info: {{transport: litellm}}
stratiform:
  store: sqlite:{folder}/state.sqlite
  prompts: {{folders: [./texts], shipped: false, use: [rules, before, after]}}
  window:
    profile: {profile}
    profiles:
      mine: {{capability: chat, window_tokens: 12000, output_tokens: 100, margin_tokens: 0}}
"""
TEXTS = {
    "rules": "---\nid: rules\nposition: system\n---\nFollow the rules.",
    "before": "---\nid: before\nposition: user_prefix\n---\nQuestion:",
    "after": "---\nid: after\nposition: user_suffix\n---\nBe brief.",
}
SYSTEM, INSET = "Follow the rules.", ("Question:", "Be brief.")
OWN = "Every rule of the house is kept. " * 300


@dataclass
class World:
    """A proxy with prompts, and the provider behind it."""

    url: str
    provider: Scripted

    def ask(self, messages: list[Any], model: str = "claude") -> Any:
        """The provider's answer."""
        with openai.OpenAI(base_url=f"{self.url}/v1", api_key="-", max_retries=0) as client:
            return client.chat.completions.with_raw_response.create(model=model, messages=messages)

    def sent(self) -> list[dict[str, Any]]:
        """The bodies that the provider got."""
        return [seen.json for seen in self.provider.seen]


@contextmanager
def world(folder: Path, reply: Reply, *, profile: str = '""') -> Iterator[World]:
    write_prompts(folder / "texts", TEXTS)
    provider = Scripted(reply)
    with serving(provider) as url:
        config = CONFIG.format(url=url, folder=folder, profile=profile)
        with whole(folder, config) as proxy:
            yield World(proxy, provider)


def talk(turns: int) -> list[Any]:
    found: list[Any] = [{"role": "system", "content": OWN}]
    for number in range(turns):
        found += [{"role": "user", "content": f"question {number} " * 30}]
        found += [{"role": "assistant", "content": f"answer {number} " * 60}]
    return [*found, {"role": "user", "content": "and now?"}]


def faults(messages: list[Any], sent: dict[str, Any], mode: str, **more: Any) -> list[str]:
    original = {"messages": messages, "model": "claude"}
    terms: dict[str, Any] = {"system": SYSTEM, "inset": INSET, "is_trimmed": True, **more}
    return [str(one) for one in check(original, sent, mode=mode, profile="anthropic", **terms)]


@pytest.mark.slow
def test_azures_client_and_azures_deployments_have_the_operators_texts(tmp_path: Path) -> None:
    asked = talk(60)
    with world(tmp_path, replies(completion()), profile="mine") as there:
        with openai.AzureOpenAI(
            azure_endpoint=there.url, api_key="-", api_version="2024-10-21", azure_deployment="own", max_retries=0
        ) as client:
            client.chat.completions.create(model="whatever", messages=asked)
        (seen,) = there.provider.seen
        assert (seen.path, seen.query) == ("/openai/deployments/gpt-own/chat/completions", "api-version=2024-06-01")
        assert faults(asked, seen.json, "observe") == []
        assert len(seen.json["messages"]) < 122


@pytest.mark.slow
@pytest.mark.parametrize("profile", ['""', "mine"])
def test_a_session_that_meets_another_process_has_the_same_prompts_and_stays_faithful(
    tmp_path: Path, profile: str
) -> None:
    """Texts of earlier turns are in the memory of the process that sent them: another one leaves them out."""
    versions = set()
    for turns in (1, 3):
        # One store, and a process that knows nothing of the requests before, for every second request.
        with world(tmp_path, replies(completion()), profile=profile) as there:
            for more in (0, 1):
                asked = talk(turns + more)
                answer = there.ask(asked)
                versions.add(answer.headers["x-stratiform-prompts"])
                users = [i for i, message in enumerate(asked) if message["role"] == "user"]
                known = {users[-2]: INSET} if more else {}
                assert faults(asked, there.sent()[-1], "tier", earlier=known, is_trimmed=False) == []
    assert len(versions) == 1
