"""What a provider bills beside one prompt and one answer: rounds of its own tools with all that they bring, containers
by their memory, summaries, predictions, files that are longer than they say. A hard budget of $0.05 holds for each of
them, 16 at once."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.examples import sampled
from tests.fuzz.billing import CountingProvider
from tests.fuzz.spending import BUDGET_USD, Request, Worlds, asking, flac, form, sent, spending_worlds

Priced = tuple[Worlds, CountingProvider]
ERROR_USD = 0.005
MASTER = "sk-master-7d1fC0ffee00ab93e1"
WORDS = "word " * 60
"""What takes no longer to be generated than the provider is waited for."""


@dataclass(frozen=True, slots=True)
class Row:
    """``passes``: such a request is sent, and not refused whatever is left."""

    name: str
    request: Request
    passes: bool = False


def asked(path: str, **more: Any) -> Request:
    told = {"max_tokens": 50} if path.endswith(("messages", "completions")) else {"input": "Go on."}
    body = {"model": "small", **({"messages": [{"role": "user", "content": "Go on."}]} | told), **more}
    return Request(f"/v1/{path}", json.dumps(body).encode())


def tool(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "name": kind.partition("_2")[0], **more}


def container(size: str) -> dict[str, Any]:
    return {"type": "auto", "memory_limit": size}


COMPACT = {"edits": [{"type": "compact_20260112"}]}
ROWS = [
    Row("a page is as long as the window", asked("messages", tools=[tool("web_fetch_20250910", max_uses=2)]), True),
    Row("pages without a limit", asked("messages", tools=[tool("web_fetch_20250910")])),
    Row("found files", asked("responses", max_output_tokens=50, max_tool_calls=1, tools=[tool("file_search")]), True),
    Row("answers of the client's own server",
        asked("responses", max_output_tokens=50, max_tool_calls=2, tools=[tool("mcp", server_url="https://a")]), True),
    Row("what searches before have found", asked("messages", tools=[tool("web_search_20250305", max_uses=1)]), True),
    Row("two tools of one kind", asked("messages", tools=[tool("web_search_20250305", max_uses=1)] * 2)),
    Row("a limit of calls on another path", asked("chat/completions", max_tool_calls=1, tools=[tool("web_search")])),
    Row("a limit of uses on another path", asked("responses", tools=[tool("web_search", max_uses=1)])),
    Row("a small container",
        asked("responses", max_output_tokens=50, max_tool_calls=1,
              tools=[tool("code_interpreter", container=container("1g"))]), True),
    Row("the largest container",
        asked("responses", max_output_tokens=50, max_tool_calls=1,
              tools=[tool("code_interpreter", container=container("64g"))])),
    Row("a container that says two things",
        Request("/v1/responses", b'{"model":"small","input":"x","max_output_tokens":9,"max_tool_calls":1,"tools":[{'
                b'"type":"code_interpreter","container":{"type":"auto","memory_limit":"1g","memory_limit":"64g"}}]}')),
    Row("a shell of the provider's",
        asked("responses", max_output_tokens=50, max_tool_calls=1,
              tools=[{"type": "shell", "environment": {"type": "container_auto", "memory_limit": "16g"}}])),
    Row("a shell of the client's",
        asked("responses", max_output_tokens=50, tools=[{"type": "shell", "environment": {"type": "local"}}]), True),
    Row("a summary of messages", asked("messages", stream=True, context_management=COMPACT), True),
    Row("a summary, written with an escape",
        Request("/v1/messages", b'{"model":"small","max_tokens":9,"stream":true,"messages":[{"role":"user",'
                b'"content":"a"}],"context_management":{"edits":[{"type":"\\u0063ompact_20260112"}]}}'), True),
    Row("a summary of responses",
        asked("responses", max_output_tokens=50, stream=True, context_management=[{"type": "compaction"}]), True),
    Row("an edit without a summary", asked("messages", context_management={"edits": [{"type": "clear_x"}]}), True),
    Row("a compaction knows no limit", asked("responses/compact", max_output_tokens=1, stream=True), True),
    Row("a prediction that is wrong",
        asked("chat/completions", model="m", prediction={"content": WORDS}), True),
    Row("several predictions",
        asked("chat/completions", model="m", n=3, max_tokens=9, prediction={"content": WORDS}), True),
    Row("hours that say they are a second", form(flac(1.0, real=b"hours"), model="m", response_format="text")),
    Row("a plugin that nobody knows", asked("chat/completions", plugins=[{"id": "file-parser"}])),
    Row("sources without a count", asked("chat/completions", search_parameters={"max_search_results": 50})),
    Row("a search by a flag", asked("chat/completions", max_tokens=50, enable_search=True), True),
    Row("a search that is off", asked("chat/completions", max_tokens=50, enable_search=False), True),
    Row("the client's own documents",
        asked("chat/completions", max_tokens=50, data_sources=[
            {"type": "azure_search", "parameters": {"authentication": {"type": "api_key", "key": "theirs"}}}]), True),
    Row("connectors", asked("chat/completions", max_tokens=50, connectors=[{"id": "web-search"}]), True),
    Row("knowledge", asked("chat/completions", tools=[{"type": "retrieval", "retrieval": {"knowledge_id": "1"}}])),
    Row("a tool that begins like a client's own", asked("chat/completions", tools=[tool("memory_bank")])),
    Row("another one", asked("chat/completions", tools=[tool("custom_search_20270101")])),
    Row("a conversation that asks a model", asked("conversations", inputs="Go on.")),
    Row("a conversation that goes on", asked("conversations/conv_1", inputs="Go on.")),
    Row("more answers than any server gives", asked("chat/completions", n=10**15)),
]  # fmt: skip


UNCOUNTABLE = [
    {"max_tokens": 10**15, "n": 10**15},
    {"max_tokens": 10**18, "n": 10**15, "best_of": 10**300},
    {"max_tokens": 10**15, "n": 1000, "tools": [tool("web_search_20250305", max_uses=10**250)]},
    {"max_tokens": "9" * 1000, "num_completions": 10**15, "context_management": COMPACT},
]


@pytest.fixture(scope="module")
def priced() -> Iterator[Priced]:
    with spending_worlds() as (worlds, provider):
        provider.tokens_per_s = 5000.0
        yield worlds, provider


@pytest.mark.parametrize("row", sampled([pytest.param(row, id=row.name) for row in ROWS], 6))
def test_a_hard_budget_holds(priced: Priced, row: Row) -> None:
    (world,), provider = priced
    _, key = world.new_key()
    provider.bills.clear()
    provider.always = "answer"
    statuses = world.at_once([lambda: sent(world, row.request, key)] * 16)
    statuses += world.at_once([lambda: sent(world, row.request, key)] * 16)
    provider.ended()
    provider.always = ""
    assert provider.usd <= BUDGET_USD + ERROR_USD, (provider.usd, statuses)
    assert (200 in statuses) == row.passes, statuses
    assert not any(status >= 500 for status in statuses), statuses


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/messages"])
def test_no_number_of_a_request_fails_the_reservations_of_others(tmp_path: Path, path: str) -> None:
    # Without a hard budget such a request is sent; its client leaves, and what it may have cost is booked.
    with spending_worlds(f"sqlite:{tmp_path / 'store.sqlite'}") as ((world,), provider):
        provider.always = "late"
        for members in UNCOUNTABLE:
            body = {"model": "m", "prompt": "x", "messages": [{"role": "user", "content": "x"}], **members}
            for stream in (False, True):
                with asking(world, Request(path, json.dumps({**body, "stream": stream}).encode()), MASTER):
                    provider.reached()
                provider.ended()
        world.forget()
        provider.always = "answer"
        assert sent(world, asked("messages"), MASTER) == 200
        entries = world.call("GET", "/admin/entries", key=MASTER)
        assert len(json.loads(entries.body)["data"]) == 2 * len(UNCOUNTABLE) + 1, "all were booked"
        assert world.call("GET", "/admin/spend", key=MASTER).status == 200
