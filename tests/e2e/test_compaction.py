"""Compaction through the whole proxy, as a configuration builds it, with the real SDK: a conversation grows past the
floor, the provider is asked for a summary behind an answer, and the next requests carry it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest

from proxy.kit.tasks import drain
from proxy.services.own_exchanges import Compactor
from tests.compactions import TEXTS
from tests.examples import sampled
from tests.security.provider import Answer, Seen
from tests.security.world import KEYS, World, world_of

CONFIG = """
model_list:
  - {model_name: cheap, litellm_params: {model: openai/cheap-1, api_base: "{alpha}/v1", api_key: sk-provider-alpha-6b1f0c8e2d},
     model_info: {transport: http}}
router_settings: {num_retries: 0, disable_cooldowns: true}
stratiform:
  port: 0
  store: "{sqlite}"
  limits: {receive_s: 20, drain_s: 2}
  teams:
    - {name: team-a, keys: [sk-alpha-team-83bd0f6f1c2e55aa]}
    - {name: team-b, keys: [sk-bravo-team-19ce77d0aa318b42]}
    - {name: tight, keys: [sk-tight-team-bb41e90c6e6f7720], budget: {usd: 0.017}}
  structured: {compaction: {allowed: true, min_history_tokens: 2000, verbatim_tokens: 300, summary_tokens: 60}}
  prices:
    cheap-1: {input_cost_per_token: 0.000002, output_cost_per_token: 0.00001}
"""  # noqa: E501
ASKED = "You read the older part of a conversation"
SUMMARY = "They agreed on seven."
GOOD = '{"boundary": 0, "confidence": 0.9, "summary": "They agreed on seven."}'
PAIR = [{"role": "user", "content": f"[History Summary]\n{SUMMARY}"}, {"role": "assistant", "content": TEXTS.ok}]


def is_asked(seen: Seen) -> bool:
    """Whether this is the call for a summary."""
    return str(seen.json["messages"][0]["content"]).startswith(ASKED)


class Talk:
    """A client of the SDK whose conversation grows by 500 tokens with each request."""

    def __init__(self, world: World, key: str = "team-a", **section: Any) -> None:
        self.world, self.key = world, key
        self.section = {"session": "s", "use_repo_map": False, "compaction": True, **section}
        self.turns: list[dict[str, str]] = [{"role": "system", "content": "Be exact."}]
        self.client = openai.OpenAI(base_url=f"{world.url}/v1", api_key=KEYS[key], max_retries=0)

    def ask(self) -> list[dict[str, Any]]:
        """The next request, and everything behind its answer: the messages that the provider got."""
        number = len(self.turns)
        self.turns.append({"role": "user", "content": f"question {number} " * 80})
        before = len(self.world.sent())
        answer = self.client.chat.completions.create(
            model="cheap",
            messages=self.turns,  # type: ignore[arg-type]
            max_tokens=5,
            extra_body={"stratiform": self.section},
        )
        assert answer.choices[0].message.content
        self.turns.append({"role": "assistant", "content": f"answer {number} " * 80})
        self.wait()
        sent = [seen for seen in self.world.sent()[before:] if not is_asked(seen)]
        assert len(sent) == 1
        messages: list[dict[str, Any]] = sent[0].json["messages"]
        return messages

    def wait(self) -> None:
        """Until everything has ended that runs, and the call for a summary behind it."""
        self.world.ledger(self.key)
        engine: Any = self.world._assembly.parts.engine
        for follower in engine._follower._followers:
            if isinstance(follower, Compactor):  # others write what they know some seconds later
                self.world._on_loop(drain(follower._tasks))

    def asks(self, count: int) -> list[dict[str, Any]]:
        """So many requests; the messages of the last one."""
        return [self.ask() for _ in range(count)][-1]

    @property
    def calls(self) -> list[Seen]:
        """The calls for a summary."""
        return [seen for seen in self.world.sent() if is_asked(seen)]


@contextmanager
def talking(answer: Answer | None, key: str = "team-a", config: str = CONFIG, **section: Any) -> Iterator[Talk]:
    """A talk whose provider answers the call for a summary so; None: as any other call."""
    with world_of(config, providers=["alpha"]) as world:
        world.providers["alpha"].script = lambda seen: answer if is_asked(seen) else None
        talk = Talk(world, key, **section)
        try:
            yield talk
        finally:
            talk.client.close()


def said(text: str) -> Answer:
    """An answer of the model."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": 1_000, "completion_tokens": 50, "total_tokens": 1_050}
    return Answer(body={"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage})


def texts(messages: list[dict[str, Any]]) -> str:
    return "\n".join(str(message["content"]) for message in messages)


def reasons(talk: Talk) -> list[str]:
    return [entry.reason for entry in talk.world.ledger(talk.key)]


def test_a_long_conversation_carries_a_summary_from_the_next_request_on() -> None:
    with talking(said(GOOD)) as talk:
        whole = talk.asks(5)
        assert len(whole) == 10
        assert len(talk.calls) == 1
        short = talk.ask()
        assert short[0]["content"] == "Be exact."
        assert short[1:3] == PAIR
        assert len(short) < len(whole)
        assert "question 1 " not in texts(short)
        assert talk.turns[-2] in short
        longer = talk.ask()
        assert longer[: len(short)] == short
        assert SUMMARY not in talk.world.log
        assert "question 1 " not in talk.world.log


def test_the_call_is_in_the_ledger_of_the_team_that_asked_and_has_no_tools() -> None:
    with talking(said(GOOD)) as talk:
        talk.asks(5)
        (call,) = talk.calls
        assert sorted(call.json) == ["max_tokens", "messages", "model"]
        assert call.json["model"] == "cheap-1"
        assert call.header("authorization") == "Bearer sk-provider-alpha-6b1f0c8e2d"
        entries = [entry for entry in talk.world.ledger("team-a") if entry.reason == "compaction"]
        assert [entry.cost for entry in entries] == [1_000 * 2_000 + 50 * 10_000]
        assert talk.world.ledger("team-b") == []
        assert 'stratiform_compactions_total{outcome="summarized"} 1.0' in talk.world.metrics()


def test_a_request_that_is_streamed_is_followed_by_it_as_well() -> None:
    with talking(said(GOOD)) as talk:
        talk.asks(4)
        stream = talk.client.chat.completions.create(
            model="cheap",
            messages=[*talk.turns, {"role": "user", "content": "question 9 " * 80}],  # type: ignore[list-item]
            stream=True,
            extra_body={"stratiform": talk.section},
        )
        assert [chunk for chunk in stream]
        talk.wait()
        assert len(talk.calls) == 1


@pytest.mark.parametrize(
    "answer",
    sampled(
        [
            said("No."),
            said('{"boundary": 77, "confidence": 1, "summary": "x"}'),
            Answer(500, {"error": {"message": "no"}}),
            Answer(200, b"\x00"),
            None,
        ],
        5,
        2,
    ),
    ids=["prose", "out of range", "error", "no JSON", "as any other"],
)  # fmt: skip
def test_a_call_that_fails_changes_nothing(answer: Answer | None) -> None:
    with talking(answer) as talk:
        messages = talk.asks(9)
        assert len(messages) == 18
        assert [message["content"] for message in messages[1:]] == [turn["content"] for turn in talk.turns[1:-1]]
        assert 1 <= len(talk.calls) <= 3


def test_a_budget_without_room_changes_nothing() -> None:
    with talking(said(GOOD), "tight") as talk:
        # The budget has room for the fifth request, and behind it not for the call.
        assert len(talk.asks(5)) == 10
        assert talk.calls == []
        assert reasons(talk).count("compaction") == 0
        assert 'stratiform_compactions_total{outcome="denied"} 1.0' in talk.world.metrics()


def test_nothing_happens_where_the_client_does_not_ask() -> None:
    with talking(said(GOOD), compaction=False) as talk:
        assert len(talk.asks(8)) == 16
        assert talk.calls == []


def test_where_the_operator_does_not_allow_it_the_request_goes_on_and_is_counted() -> None:
    config = CONFIG.replace("allowed: true", "allowed: false")
    with talking(said(GOOD), config=config) as talk:
        assert len(talk.asks(7)) == 14
        assert talk.calls == []
        assert 'stratiform_compactions_total{outcome="disallowed"} 7.0' in talk.world.metrics()


def test_another_team_with_the_same_words_gets_no_summary() -> None:
    with talking(said(GOOD)) as talk:
        talk.asks(6)
        neighbour = Talk(talk.world, "team-b")
        neighbour.turns = list(talk.turns)
        assert SUMMARY not in texts(neighbour.ask())
        assert SUMMARY in texts(talk.ask())
        neighbour.client.close()


def test_a_client_that_rewrites_its_past_gets_all_of_it_sent() -> None:
    with talking(said(GOOD)) as talk:
        talk.asks(7)
        talk.turns[1] = {"role": "user", "content": "something else " * 80}
        messages = talk.ask()
        assert len(messages) == 16
        assert SUMMARY not in texts(messages)


@pytest.mark.slow
def test_a_restart_loses_only_the_compaction() -> None:
    with talking(said(GOOD)) as talk:
        talk.asks(7)
        turns = talk.turns
    with talking(said(GOOD)) as again:
        again.turns = turns
        messages = again.ask()
        assert len(messages) == 16
        assert SUMMARY not in texts(messages)


@pytest.mark.slow
@pytest.mark.parametrize("assembly", ["tiered", "flat"])
def test_the_tiered_and_the_flat_form_carry_the_summary_as_well(assembly: str) -> None:
    config = CONFIG.replace("stratiform:\n", "stratiform:\n  policy: classic\n")
    file = {"path": "a.py", "content": "a = 1\n" * 50, "selected": True}
    with talking(said(GOOD), config=config, assembly=assembly, files=[file]) as talk:
        talk.asks(5)
        found = texts(talk.ask())
        assert found.count(SUMMARY) == 1
        assert "a = 1" in found
        assert "question 1 " not in found


@pytest.mark.slow
def test_panels_and_the_rules_of_the_history_go_with_it() -> None:
    panel = {"id": "P1", "kind": "todo", "header": "Todo", "content": "Count."}
    with talking(said(GOOD), panels=[panel], detach=False) as talk:
        talk.asks(5)
        short = talk.ask()
        assert SUMMARY in texts(short)
        assert "Count." in texts(short)
        assert reasons(talk).count("compaction") == 1
