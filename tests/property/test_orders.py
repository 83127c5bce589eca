"""Every order that may ever be proposed is faithful, whatever it would cost: random weights, tiers, earlier layouts."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from proxy.planner.layout import Layout
from proxy.planner.orders import RequestElements, behind_prefix, by_tiers, moved_elements, valid_prefix
from proxy.planner.render import render_messages, render_tools
from proxy.planner.tiers import Tier
from proxy.protocol.caches import Life
from proxy.protocol.providers import PROFILES
from proxy.protocol.recognition import ContextPiece
from proxy.protocol.request import parse_body
from proxy.protocol.request.element import Element
from proxy.protocol.request.tokens import TokenCounter, bytes_over_four
from proxy.protocol.wire.json_body import splice
from tests.examples import examples
from tests.fidelity.chats import AiderChat
from tests.fidelity.checker import check
from tests.fidelity.strategies import aider_sessions
from tests.property.conversations import Step, conversations
from tests.talk import Talk

QUIRKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def an_order(material: RequestElements, past: Sequence[Sequence[bytes]], chance: random.Random) -> tuple[Element, ...]:
    """One of the ways in which orders are made, with random numbers for what is learnt."""
    weights: dict[str, float] = {}

    def weight(item: ContextPiece) -> float:
        return weights.setdefault(item.key, chance.random())

    if chance.random() < 0.3:
        tiers: dict[str, Tier] = {}
        return by_tiers(
            material,
            lambda k: tiers.setdefault(k, chance.choice(list(Tier))),
            lambda k: len(k) % 5,
            weight,
            frozenset(),
        )
    before = list(chance.choice(past)) if past and chance.random() < 0.8 else []
    if before and chance.random() < 0.5:
        del before[chance.randrange(len(before)) :]
    if before and chance.random() < 0.2:
        one, other = chance.randrange(len(before)), chance.randrange(len(before))
        before[one], before[other] = before[other], before[one]
    return behind_prefix(material, valid_prefix(material, before), weight)


def some_marks(layout: Layout, chance: random.Random, tools: int) -> dict[int, Life]:
    """Markers where they may be written, at most four, one-hour ones first."""
    places = [p for p, can in enumerate(layout.markable) if can and p >= tools]
    chosen = sorted(chance.sample(places, min(len(places), chance.randrange(5))))
    long = chance.randrange(len(chosen) + 1)
    return {p: "1h" if i < long else "5m" for i, p in enumerate(chosen)}


def hold(profile_name: str, steps: list[Step], chance: random.Random) -> None:
    """Orders of every step of a conversation, with the layouts of earlier steps to go on from."""
    profile = replace(PROFILES[profile_name], min_tokens=1)
    talk, past = Talk(profile=profile), []
    for step in steps:
        in_flight = talk.send(step.body, after_s=step.after_s).in_flight
        if in_flight is None:
            continue
        analysis = in_flight.analysis
        moved = moved_elements(analysis.recognised, analysis.elements, TokenCounter(bytes_over_four))
        for material in filter(None, (analysis.elements, moved)):
            layout = Layout(analysis.choice.layout.seed, an_order(material, past, chance))
            past.append([e.digest for e in layout.elements])
            last_tool = len(material.tools[0].parts) - 1 if material.tools else -1
            explicit = profile_name == "openai-explicit"
            marks = some_marks(layout, chance, last_tool + 1 if explicit else 0)
            written = render_messages(layout, analysis.recognised.messages, marks, profile.dialect)
            changes: dict[str, bytes | None] = {"messages": b"[" + b",".join(written) + b"]"}
            request = parse_body(json.dumps(step.body).encode())
            if material.tools:
                changes["tools"] = render_tools(bytes(request.members["tools"]), marks.get(last_tool), profile.dialect)
            out = json.loads(splice(request.body, request.members, changes))
            found = [v for v in check(step.body, out, mode="tier", profile=profile_name) if v.rule != "marker-life"]
            assert found == [], list(map(str, found))


def _clock_in_a_part_of_its_own() -> list[Step]:
    """Its blank line goes with it; the next part begins with one, too."""
    content = [
        {"type": "text", "text": text}
        for text in ("The current date and time is 2026-11-21 20:00.\n\n", "\nYou are the support assistant.")
    ]
    messages = [{"role": "system", "content": content}, {"role": "user", "content": "q"}]
    return [Step(9.0, {"model": "m", "messages": messages})]


def _clock_at_the_start_of_a_part() -> list[Step]:
    """The part in front of it ends without a line break."""
    texts = ("You are a careful engineer.", "The current date and time is 2026-11-21 20:00.\nAnswer briefly.")
    content = [{"type": "text", "text": text} for text in texts]
    messages = [{"role": "system", "content": content}, {"role": "user", "content": "q"}]
    return [Step(9.0, {"model": "m", "messages": messages})]


@given(st.sampled_from(["anthropic", "openai-explicit"]), conversations(), st.randoms(use_true_random=False))
@example("anthropic", _clock_in_a_part_of_its_own(), random.Random(0))
@example("anthropic", _clock_at_the_start_of_a_part(), random.Random(0))
@settings(max_examples=examples(400), deadline=None, suppress_health_check=QUIRKS)
def test_any_order_is_faithful(profile: str, steps: list[Step], chance: random.Random) -> None:
    hold(profile, steps, chance)


@given(aider_sessions(), st.randoms(use_true_random=False))
@settings(max_examples=examples(150), deadline=None, suppress_health_check=QUIRKS)
def test_any_order_of_files_is_faithful(chats: list[AiderChat], chance: random.Random) -> None:
    hold("anthropic", [Step(9.0, chat.body()) for chat in chats], chance)
