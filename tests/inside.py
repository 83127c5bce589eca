"""LiteLLM's side of the callback, for tests: arguments as its hooks have them, a response cache, answers."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson

from proxy.app import inside
from proxy.app.inside import Host
from proxy.app.inside.incoming import StandDownReason
from proxy.upstream.litellm_library import LitellmRoute

MODEL_INFO = {"id": "dep-1", "cache_profile": "anthropic"}
SENDER = {"model_group": "m", "user_api_key_hash": "hash-1", "user_api_key_team_id": "team-1"}
FIELDS = frozenset({"messages", "tools", "temperature", "max_tokens"})


class MadeHost(Host):
    """A substitute for LiteLLM: ``settings`` is its configuration, ``cache`` its response cache."""

    def __init__(self, folder: Path | None = None, cache: Any = None, **section: Any) -> None:
        super().__init__(SimpleNamespace(cache=cache))
        self.route = lambda deployment: LitellmRoute("openai", FIELDS, extra_body=True, owned=frozenset())
        self._path = None
        if folder is not None:
            self._path = folder / "config.yaml"
            self._path.write_bytes(orjson.dumps({"model_list": "anything", "stratiform": section}))

    def settings_path(self) -> Path | None:
        return self._path


class ResponseCache:
    """LiteLLM's response cache, as far as the callback uses it."""

    type = "local"

    def get_cache_key(self, **arguments: Any) -> str:
        return f"key of {arguments['messages'][-1]['content']}"


def long_messages(turns: int = 1, words: str = "") -> list[dict[str, Any]]:
    """A conversation that is long enough to be cached."""
    system = {"role": "system", "content": f"You are helpful. {words}" + "Follow the guide to the letter. " * 400}
    talk = [
        message
        for n in range(turns)
        for message in ({"role": "user", "content": f"Question {n}"}, {"role": "assistant", "content": "fine"})
    ]
    return [system, *talk[:-1]]


def call(messages: Any, call_id: str = "call-1", **more: Any) -> dict[str, Any]:
    """The arguments of one attempt."""
    return {
        "model": "openai/claude",
        "messages": messages,
        "api_base": "http://127.0.0.1:1/v1",
        "api_key": "sk-upstream-secret",
        "litellm_call_id": call_id,
        "model_info": MODEL_INFO,
        "metadata": SENDER,
        "proxy_server_request": {"headers": {"user-agent": "sdk"}},
        "stream": False,
        **more,
    }


def details_of(call_id: str = "call-1", model_info: Any = MODEL_INFO, metadata: Any = SENDER, **more: Any) -> Any:
    """What LiteLLM logs about an attempt."""
    return {"litellm_call_id": call_id, "litellm_params": {"metadata": metadata, "model_info": model_info}, **more}


class Used:
    """LiteLLM's usage."""

    def __init__(self, prompt: int, read: int = 0) -> None:
        self._prompt, self._read = prompt, read

    def model_dump(self, **_: Any) -> dict[str, Any]:
        details = {"cached_tokens": self._read, "cache_creation_tokens": 0}
        return {"prompt_tokens": self._prompt, "completion_tokens": 5, "prompt_tokens_details": details}


def answer(prompt: int = 3000, read: int = 0) -> Any:
    return SimpleNamespace(usage=Used(prompt, read))


class Callback(inside.Callback):
    """A callback whose hooks return when what they have begun is done, as far as that needs no store."""

    async def before_attempt(self, arguments: Mapping[str, Any], call_type: object) -> dict[str, Any] | None:
        """Plan, and let the end of the attempt before be settled."""
        found = await super().before_attempt(arguments, call_type)
        await asyncio.sleep(0)
        return found

    async def after(self, step: Callable[..., Coroutine[Any, Any, Any]], *given: Any) -> Any:
        """Report, and let the end of the attempt be settled."""
        found = await super().after(step, *given)
        await asyncio.sleep(0)
        return found


def stand_downs(callback: Callback, reason: StandDownReason) -> float:
    return sample(callback, "stratiform_callback_stand_downs_total", reason=reason)


def sample(callback: Callback, name: str, **labels: str) -> float:
    """The sum of a metric's samples with these labels."""
    metrics = callback.metrics
    if metrics is None:
        return 0.0
    return sum(
        one.value
        for family in metrics.registry.collect()
        for one in family.samples
        if one.name == name and labels.items() <= one.labels.items()
    )


def settled(callback: Callback) -> float:
    return sample(callback, "stratiform_requests_total")


def is_marked(arguments: Mapping[str, Any]) -> bool:
    return b"cache_control" in orjson.dumps(arguments["messages"])


def texts(messages: Sequence[Mapping[str, Any]]) -> str:
    """All words of the messages, in order."""
    contents = [message.get("content") for message in messages]
    return "".join(
        content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())
        for content in contents
    )
