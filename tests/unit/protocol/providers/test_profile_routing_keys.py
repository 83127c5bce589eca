import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.kit.modes import Mode, Reason
from proxy.planner.plan import PlannerOptions
from proxy.protocol.providers import EMBEDDED, PROFILES, may_add, routing_key
from tests.examples import for_every
from tests.talk import Body, Talk, assistant, chat, lines, marks_in, sent, system, user

KEY = re.compile(r"st-[0-9a-f]{32}")
SYSTEM = system(lines(200))


@given(st.text(), st.binary())
def test_a_key_is_safe_and_short(scope: str, name: bytes) -> None:
    key = routing_key(scope, name)
    assert KEY.fullmatch(key)
    assert key == routing_key(scope, name)


@given(st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3)), unique=True, min_size=2, max_size=20))
def test_sessions_and_scopes_are_apart(pairs) -> None:
    assert len({routing_key(scope, name) for scope, name in pairs}) == len(pairs)


@for_every(
    [
        ("openai", (), "openai", True, True),
        ("openai", (), EMBEDDED, False, True),
        ("openai", (), "", False, False),  # a gateway that serves GPT: nobody knows what it accepts
        ("openai", (), "groq", False, False),
        ("openai", ("prompt_cache_key",), "openai", False, False),
        ("openai-explicit", (), "openai", False, False),  # a partition there, and nobody asks for one
        ("azure", (), "azure", False, True),
        ("azure-explicit", (), "azure", False, True),
        ("mistral", (), "mistral", False, True),
        ("kimi", (), "moonshot", False, True),
        ("xai", (), "xai", False, True),
        ("openrouter-anthropic", (), "openrouter", False, True),
        ("openrouter-anthropic", (), "openrouter", True, False),  # the client's own x-session-id goes there, too
        ("openrouter-anthropic", ("prompt_cache_key",), "openrouter", False, False),
        ("fireworks", (), "fireworks_ai", True, False),
        ("anthropic", (), "anthropic", False, False),
        ("groq", (), "groq", False, False),
        ("none", (), "", False, False),
    ]
)
def test_where_one_is_added(name: str, members: tuple[str, ...], server: str, is_hinted: bool, added: bool) -> None:
    assert may_add(PROFILES[name], members, server, is_hinted=is_hinted) is added


def talk(profile: str = "openai", server: str = EMBEDDED, **more: object) -> Talk:
    made = Talk(profile=PROFILES[profile], **more)  # type: ignore[arg-type]
    made.route = replace(made.route, server=server)
    return made


def conversation(turns: int, label: str = "q") -> list[Body]:
    found: list[Body] = [SYSTEM]
    for number in range(turns):
        found += [user(f"{label}{number}"), assistant(f"answer {label}{number}")]
    return found[:-1]


class TestOnTheWire:
    @pytest.mark.parametrize("mode", [Mode.MARK, Mode.TIER])
    def test_requests_that_begin_alike_share_a_key_within_a_scope(self, mode: Mode) -> None:
        client = talk(mode=mode)
        keys = {
            sent(client.send(chat(*conversation(n, label))))["prompt_cache_key"] for n in (1, 2, 3) for label in "ab"
        }
        assert len(keys) == 1
        assert all(KEY.fullmatch(key) for key in keys)
        client.route = replace(client.route, scope="another team")
        assert sent(client.send(chat(*conversation(1))))["prompt_cache_key"] not in keys

    def test_a_sticky_router_is_told_each_conversation(self) -> None:
        client = talk("openrouter-anthropic", "openrouter")
        keys = [sent(client.send(chat(*conversation(n, label))))["session_id"] for n in (1, 2) for label in "ab"]
        assert keys[0] == keys[2] != keys[1] == keys[3]

    def test_everything_else_is_the_clients_own_bytes(self) -> None:
        raw = b'{"model": "m",  "messages": [{"role":"user","content":"a"}], "x":1.0 }'
        raw = raw.replace(b'"a"', b'"' + b"a long text " * 600 + b'"')
        plan = talk().send(raw)
        assert plan.body.startswith(raw[:-2])
        assert re.fullmatch(rb'\s*,"prompt_cache_key":"st-[0-9a-f]{32}"\}', plan.body[len(raw) - 2 :])

    @pytest.mark.parametrize("mode", [Mode.PASSTHROUGH, Mode.OBSERVE])
    def test_modes_that_change_nothing_add_nothing(self, mode: Mode) -> None:
        plan = talk(mode=mode).send(chat(*conversation(1)))
        assert b"prompt_cache_key" not in plan.body

    def test_the_clients_own_stays(self) -> None:
        body = sent(talk().send(chat(*conversation(1), prompt_cache_key="mine")))
        assert body["prompt_cache_key"] == "mine"

    def test_a_header_where_the_provider_takes_one(self) -> None:
        plan = talk("xai", "xai").send(chat(*conversation(1)))
        assert [(name, bool(KEY.fullmatch(key))) for name, key in plan.headers] == [("x-grok-conv-id", True)]
        assert not plan.rewritten

    def test_an_operator_may_turn_affinity_keys_off(self) -> None:
        plan = talk(options=PlannerOptions(routing_keys=False)).send(chat(*conversation(1)))
        assert (b"prompt_cache_key" in plan.body, plan.headers) == (False, ())

    def test_a_route_that_refuses_affinity_keys_gets_none_again(self) -> None:
        client = talk()
        for label in "ab":
            plan = client.plan(chat(*conversation(1, label)))
            assert b"prompt_cache_key" in plan.body
            client.planner.barred(plan)
        assert b"prompt_cache_key" not in client.plan(chat(*conversation(1, "c"))).body

    def test_a_busy_cohort_has_an_affinity_key_for_each_conversation(self) -> None:
        client = talk()
        for number in range(40):
            client.send(chat(*conversation(1, f"warm {number}")), after_s=0.5)
        keys = {sent(client.send(chat(*conversation(1, label)), after_s=0.5))["prompt_cache_key"] for label in "abc"}
        assert len(keys) == 3


class TestNoBoundaries:
    """GPT-5.6 and newer: a request that is not continued is told to store nothing of its end."""

    def one_shots(self, count: int, server: str = EMBEDDED, **more: object) -> list[Body]:
        client = talk("openai-explicit", server)
        return [
            sent(client.send(chat(SYSTEM, user(lines(60, f"text {number}")), **more), after_s=4000))
            for number in range(count)
        ]

    def test_one_shots_are_not_stored(self) -> None:
        bodies = self.one_shots(8)
        assert "prompt_cache_options" not in bodies[0]
        assert bodies[-1]["prompt_cache_options"] == {"mode": "explicit"}
        assert marks_in(bodies[-1]) == []

    def test_one_shots_store_the_beginning_that_they_share(self) -> None:
        client = talk("openai-explicit")
        plans = [client.send(chat(SYSTEM, user(lines(60, f"text {number}")))) for number in range(8)]
        body = sent(plans[-1])
        assert (plans[-1].reason, body["prompt_cache_options"]) == (Reason.ONE_SHOT, {"mode": "explicit"})
        assert marks_in(body) == ["0.0"]
        assert plans[-1].predicted.read > 2000

    def test_what_the_client_says_of_boundaries_stays(self) -> None:
        bodies = self.one_shots(8, prompt_cache_options={"ttl": "30m"})
        assert all(body["prompt_cache_options"] == {"ttl": "30m"} for body in bodies)

    def test_one_shots_get_no_cache_options_where_nobody_knows_who_answers(self) -> None:
        assert not any("prompt_cache_options" in body for body in self.one_shots(8, ""))

    def test_a_conversation_keeps_the_providers_own_boundaries(self) -> None:
        client = talk("openai-explicit")
        assert not any(b"prompt_cache_options" in client.send(chat(*conversation(n))).body for n in range(1, 6))
