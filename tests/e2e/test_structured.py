"""Structured context with the real SDK: files go up once, and the model gets a whole prompt each time."""

import hashlib
from collections.abc import Sequence
from typing import Any

import openai
import orjson
import pytest

from proxy.engine.exchange import Exchange
from proxy.kit.errors import BudgetExceeded
from proxy.kit.modes import Mode
from proxy.models import Deployment
from tests.doubles import OpenDoor
from tests.e2e.conftest import Proxy, Start, planner_of
from tests.e2e.provider import Scripted, completion, replies

SYSTEM = {"role": "system", "content": "You are a coding assistant. " * 400}
A, B = "a = 1\n" * 300, "b = 2\n" * 300


def ask(proxy: Proxy, section: dict[str, Any], *history: dict[str, str], prompt: str = "go on", **more: Any) -> Any:
    """One chat with structured context, through the SDK as it is."""
    messages: Any = [SYSTEM, *history, {"role": "user", "content": prompt}]
    return proxy.client.chat.completions.create(
        model="m", messages=messages, extra_body={"stratiform": section}, **more
    )


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def scripted() -> Scripted:
    return Scripted(replies(completion()))


def sent_texts(provider: Scripted) -> list[str]:
    """The contents of the messages of the last request, as text."""
    body = orjson.loads(provider.seen[-1].body)
    assert "stratiform" not in body
    found = []
    for message in body["messages"]:
        content = message["content"]
        found.append(content if isinstance(content, str) else "".join(part.get("text", "") for part in content))
    return found


@pytest.mark.parametrize("policy", ["economic", "classic"])
def test_selected_files_stand_in_the_prompt_once(start: Start, policy: str) -> None:
    provider = scripted()
    proxy = start(provider, planner=planner_of(policy))
    ask(proxy, {"files": [{"path": "src/a.py", "content": A, "selected": True}, {"path": "b.py", "content": B}]})
    text = "\n".join(sent_texts(provider))
    assert text.count("src/a.py\n```\na = 1\n") == 1
    assert "b = 2" not in text
    assert text.endswith("go on")


@pytest.mark.parametrize("policy", ["economic", "classic"])
def test_what_went_up_once_is_named_by_its_digest(start: Start, policy: str) -> None:
    provider = scripted()
    proxy = start(provider, planner=planner_of(policy))
    ask(proxy, {"session": "s", "files": [{"path": "a.py", "content": A, "selected": True}]})
    ask(proxy, {"session": "s", "files": [{"path": "a.py", "digest": digest_of(A), "selected": True}]})
    assert "a.py\n```\na = 1\n" in "\n".join(sent_texts(provider))


def test_a_digest_that_is_not_known_is_a_409_that_names_it_and_is_not_repeated(start: Start) -> None:
    provider = scripted()
    proxy = start(provider)
    patient = proxy.other_client(max_retries=3)
    files = [{"path": "a.py", "digest": digest_of(A), "selected": True}]
    with pytest.raises(openai.ConflictError) as found:
        patient.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "q"}], extra_body={"stratiform": {"files": files}}
        )
    assert found.value.body["missing"] == [digest_of(A)]  # type: ignore[index]
    assert found.value.code == "missing_content"
    assert (len(proxy.ledger.wait()), provider.seen) == (1, [])
    patient.close()


def test_a_fourth_url_is_refused(start: Start) -> None:
    page = {"url": "https://example.com", "title": "t", "content": "c"}
    with pytest.raises(openai.BadRequestError):
        ask(start(scripted()), {"urls": [page] * 4})


def test_the_tiers_end_at_markers_and_fill_up(start: Start) -> None:
    provider = scripted()
    proxy = start(provider, planner=planner_of("classic"))
    section = {"session": "s", "files": [{"path": "a.py", "content": A * 4, "selected": True}]}
    history: list[dict[str, str]] = []
    for number in range(5):
        ask(proxy, section, *history, prompt=f"turn {number}")
        history += [{"role": "user", "content": f"turn {number}"}, {"role": "assistant", "content": "ok"}]
    body = orjson.loads(provider.seen[-1].body)
    marked = [message for message in body["messages"] if b"cache_control" in orjson.dumps(message)]
    assert [message["role"] for message in marked] == ["system", "user"]
    assert marked[1]["content"][0]["text"].startswith("# Reference Files (L3)\n\n")
    assert proxy.ledger.wait(5)[-1].planned.reason == "assembled-tiers"


def test_a_review_stays_until_it_is_removed(start: Start) -> None:
    provider = scripted()
    proxy = start(provider)
    ask(proxy, {"session": "s", "review": {"branch": "topic", "log": "one commit"}})
    ask(proxy, {"session": "s", "files": []})
    assert "Branch: topic" in "\n".join(sent_texts(provider))
    ask(proxy, {"session": "s", "review": None})
    assert "Branch: topic" not in "\n".join(sent_texts(provider))


class Fussy(OpenDoor):
    """Admits every request but those of which the next reservation is refused."""

    is_full = False

    async def reserve(self, exchange: Exchange, others: Sequence[Deployment] = ()) -> None:
        if self.is_full:
            raise BudgetExceeded("no budget is left")
        await super().reserve(exchange, others)


def test_a_request_that_no_budget_lets_pass_changes_nothing_in_its_session(start: Start) -> None:
    provider, admission = scripted(), Fussy()
    proxy = start(provider, admission=admission)
    ask(proxy, {"session": "s", "review": {"branch": "topic", "log": "one commit"}})
    admission.is_full = True
    with pytest.raises(openai.RateLimitError):
        ask(proxy, {"session": "s", "review": None})
    admission.is_full = False
    ask(proxy, {"session": "s", "files": []})
    assert "Branch: topic" in "\n".join(sent_texts(provider))


@pytest.mark.parametrize("mode", [Mode.PASSTHROUGH, Mode.OBSERVE])
def test_a_mode_that_plans_nothing_sends_the_context_flat(start: Start, mode: Mode) -> None:
    provider = scripted()
    proxy = start(provider, mode=mode)
    ask(proxy, {"files": [{"path": "a.py", "content": A, "selected": True}]})
    assert [text[:15] for text in sent_texts(provider)] == ["You are a codin", "# Working Files", "Ok.", "go on"]
    assert b"cache_control" not in provider.seen[-1].body


def test_the_flat_assembly_can_be_asked_for(start: Start) -> None:
    provider = scripted()
    proxy = start(provider)
    ask(proxy, {"assembly": "flat", "files": [{"path": "a.py", "content": A, "selected": True}]})
    assert b"cache_control" not in provider.seen[-1].body
    assert proxy.ledger.wait()[0].planned.reason == "assembled-flat"


def test_a_breakdown_shows_the_request_and_sends_nothing(start: Start) -> None:
    provider = scripted()
    proxy = start(provider, planner=planner_of("classic"))
    section = {"files": [{"path": "a.py", "content": A, "selected": True}], "tree": True}
    body = {"model": "m", "messages": [SYSTEM, {"role": "user", "content": "q"}], "stratiform": section}
    found = proxy.client.post("/stratiform/breakdown", body=body, cast_to=object)
    assert isinstance(found, dict)
    assert [block["tier"] for block in found["blocks"]] == ["L0", "active"]
    keys = [item["key"] for block in found["blocks"] for content in block["contents"] for item in content["items"]]
    assert keys == ["system:0", "tree", "file:a.py", "prompt:0"]
    assert found["total_tokens"] == sum(block["tokens"] for block in found["blocks"])
    assert provider.seen == []
    assert proxy.ledger.wait()[0].arrival.path == "/stratiform/breakdown"


def test_structured_context_without_messages_is_refused(start: Start) -> None:
    body = {"model": "m", "stratiform": {"files": []}}
    with pytest.raises(openai.BadRequestError) as found:
        start(scripted()).client.post("/chat/completions", body=body, cast_to=object)
    assert found.value.code == "missing_messages"


def test_a_breakdown_of_a_request_without_structured_context_is_refused(start: Start) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "q"}]}
    with pytest.raises(openai.BadRequestError):
        start(scripted()).client.post("/stratiform/breakdown", body=body, cast_to=object)


def test_a_refused_layout_is_sent_again_flat(start: Start) -> None:
    error = {"message": "cache_control is not allowed", "type": "invalid_request_error"}
    refuses = replies({"error": error}, status=400)
    provider = Scripted(refuses, replies(completion()))
    proxy = start(provider, planner=planner_of("classic"))
    ask(proxy, {"session": "s", "files": [{"path": "a.py", "content": A, "selected": True}]})
    assert (b"cache_control" in provider.seen[0].body, b"cache_control" in provider.seen[1].body) == (True, False)
    assert "a.py\n```\na = 1\n" in "\n".join(sent_texts(provider))
