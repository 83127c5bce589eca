"""Texts with halves of surrogate pairs, as JavaScript's strings may have: planned like any other character."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.protocol.providers import OPENAI
from tests.examples import examples
from tests.fidelity.checker import check
from tests.property.conversations import Step, conversations
from tests.talk import TINY, Talk, assistant, chat, lines, system, user

# Neither is a letter, a digit or blank space, and both take three bytes.
HALVES = ("\ud83d", "\udc00")
WHOLE = "\ue03d"


def replaced(value: Any, old: str, new: str) -> Any:
    """The value with another character in all of its texts, but for those of names and kinds."""
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, list):
        return [replaced(each, old, new) for each in value]
    if isinstance(value, dict):
        return {k: replaced(each, old, new) if k in ("content", "text") else each for k, each in value.items()}
    return value


def with_character(body: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    """The request with another character in its messages."""
    return {**body, "messages": [replaced(message, old, new) for message in body["messages"]]}


SLOW_DRAWS = [HealthCheck.too_slow, HealthCheck.data_too_large]


@given(conversations(), st.sampled_from("aeot.1 "), st.sampled_from(HALVES), st.booleans(), st.booleans())
@settings(max_examples=examples(60), deadline=None, suppress_health_check=SLOW_DRAWS)
def test_half_a_pair_is_planned_like_another_character(
    steps: list[Step], letter: str, half: str, is_escaped: bool, marks: bool
) -> None:
    profile = TINY if marks else OPENAI
    talk, twin = Talk(profile=profile), Talk(profile=profile)
    for step in steps:
        odd, plain = (with_character(step.body, letter, new) for new in (half, WHOLE))
        raw, same = (json.dumps(b, ensure_ascii=is_escaped).encode("utf-8", "surrogatepass") for b in (odd, plain))
        plan, other = talk.send(raw, after_s=step.after_s), twin.send(same, after_s=step.after_s)
        assert plan.surprise is None
        assert (plan.reason, plan.segment_tokens) == (other.reason, other.segment_tokens)
        sent = json.loads(plan.body.decode("utf-8", "surrogatepass"))
        assert with_character(sent, half, WHOLE) == json.loads(other.body)
        assert check(odd, sent, mode="tier", profile=profile.name) == []


def test_a_character_that_is_no_white_space_is_part_of_a_tags_name() -> None:
    """Else what stands between the tags is moved as a document, which it is not: the system text grows by it."""
    for character in (*HALVES, WHOLE, "-list ", ":", "/"):
        documents = [f'<document{character}id="{name}">\n{lines(12, name)}</document>\n' for name in ("a", "b")]
        talk, turns = Talk(profile=TINY), []
        for number in range(3):
            text = "You are kind.\n" + "".join(documents[:number]) + "Be exact.\n" + lines(20, "rule")
            body = chat(system(text), *turns, user(f"question {number}"))
            sent = json.loads(talk.send(json.dumps(body).encode()).body.decode("utf-8", "surrogatepass"))
            assert check(body, sent, mode="tier", profile=TINY.name) == []
            turns += [user(f"question {number}"), assistant("Yes.")]


def test_half_a_pair_beside_further_members_of_a_part_counts_as_one_character() -> None:
    for member in ({"annotations": []}, {"type": "unknown"}):
        odd, plain = (
            json.dumps(chat(user([{"type": "text", "text": f"Be ex{c}ct.\nsection 0", **member}])), ensure_ascii=False)
            for c in (HALVES[0], WHOLE)
        )
        plan, other = (Talk(profile=OPENAI).send(body.encode("utf-8", "surrogatepass")) for body in (odd, plain))
        assert plan.segment_tokens == other.segment_tokens
