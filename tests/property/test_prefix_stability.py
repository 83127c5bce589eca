"""A cache reads bytes: what the planner believes to be equal is equal on the wire, and stays where it was put."""

import json
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.kit.modes import Mode
from proxy.planner.plan import Plan
from proxy.protocol.providers import PROFILES
from tests.examples import examples
from tests.fidelity.strategies import aider_sessions, growing_sessions
from tests.property.conversations import Step, conversations
from tests.talk import MARK_KEYS, Body, Talk, analysis_of, lines

QUIRKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
Block = tuple[str, ...]


def _bare(holder: Any) -> Any:
    return {k: v for k, v in holder.items() if k not in MARK_KEYS}


def _canonical(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=False)


def _part(role: str, part: Body) -> Block:
    bare = _bare(part)
    if bare.keys() == {"type", "text"} and bare["type"] == "text":
        return (role, "text", bare["text"])
    return (role, "part", _canonical(bare))


_BLOCKS = ("role", "content", "tool_calls")


def blocks(body: Body) -> list[tuple[Block, bool]]:
    """The sent request as a provider's cache sees it, one block after another, and whether a marker stands on it.

    Written from the wire form alone: a string is a text part, a tool result is one block, a call is one.
    """
    found: list[tuple[Block, bool]] = []
    for tool in body.get("tools") or []:
        bare = _bare(tool)
        if isinstance(bare.get("function"), dict):
            bare["function"] = _bare(bare["function"])
        found.append((("tool", _canonical(bare)), _is_marked(tool)))
    for message in body["messages"]:
        content, role = message.get("content"), message["role"]
        whole, first = _is_marked(message), len(found)
        if role == "tool" and content is not None:
            parts = [("text", content)] if isinstance(content, str) else [_part("", p) for p in content]
            texts = tuple(p[-1] for p in parts)
            marked = whole or (isinstance(content, list) and any(map(_is_marked, content)))
            found.append(((role, *texts), marked))
        elif isinstance(content, str):
            # An empty text beside calls is no block: https://docs.anthropic.com/en/api/messages refuses empty texts.
            found += [((role, "text", content), whole)] if content or not message.get("tool_calls") else []
        else:
            found += [(_part(role, p), _is_marked(p)) for p in content or []]
        found += [(("call", _canonical(_bare(c))), _is_marked(c)) for c in message.get("tool_calls") or []]
        # A name, thinking, the call that is answered: rendered with the message's first block.
        said = {k: v for k, v in message.items() if k not in _BLOCKS and k not in MARK_KEYS and v not in (None, [], "")}
        if said and len(found) > first:
            found[first] = ((*found[first][0], _canonical(said)), found[first][1])
    return found


def _is_marked(holder: Body) -> bool:
    return any(holder.get(key) is not None for key in MARK_KEYS)


def hold(profile: str, steps: list[Step]) -> None:
    """Of every two requests of a conversation: where the shadow's hashes are equal the sent blocks are.

    And the other way round, but for recognised texts: they are known by their pieces, and the same text may be cut in
    two ways (then a hit comes unexpected).
    """
    talk = Talk(profile=replace(PROFILES[profile], min_tokens=1))
    past: list[tuple[list[Block], list[bytes], bool]] = []
    for step in steps:
        plan = talk.send(step.body, after_s=step.after_s)
        if plan.in_flight is None or plan.in_flight.sends_own:
            continue
        wire, layout = blocks(json.loads(plan.body)), analysis_of(plan).choice.layout
        assert len(wire) == len(layout.parts)
        if plan.rewritten:
            assert {i for i, (_, is_marked) in enumerate(wire) if is_marked} == set(analysis_of(plan).choice.marks)
        sent = [block for block, _ in wire]
        is_plain = all(message.recognition is None for message in analysis_of(plan).recognised.messages)
        for before, hashes, was_plain in past:
            for position in range(min(len(before), len(sent))):
                is_equal = before[: position + 1] == sent[: position + 1]
                is_held = hashes[position] == layout.prompt({}).hashes[position]
                assert is_equal or not is_held, position
                assert is_held or not is_equal or not (is_plain and was_plain), position
        past.append((sent, layout.prompt({}).hashes, is_plain))


def _same_settings(steps: list[Step]) -> list[Step]:
    """Without what is hashed beside the blocks: parameters, and media (images break a prefix of their own)."""
    kept = ("model", "messages", "tools")
    media = ("image_url", "input_audio", "file_id")
    plain = [step for step in steps if not any(word in str(step.body) for word in media)]
    return [replace(step, body={k: v for k, v in step.body.items() if k in kept}) for step in plain]


@given(st.sampled_from(["anthropic", "openai-explicit"]), conversations().map(_same_settings))
@settings(max_examples=examples(300), deadline=None, suppress_health_check=QUIRKS)
def test_the_shadow_sees_what_is_sent(profile: str, steps: list[Step]) -> None:
    hold(profile, steps)


def _up_to_last_marker(plan: Plan) -> list[Block]:
    wire = blocks(json.loads(plan.body))
    last = max((i for i, (_, is_marked) in enumerate(wire) if is_marked), default=-1)
    return [block for block, _ in wire[: last + 1]]


@given(growing_sessions(), st.sampled_from([Mode.MARK, Mode.TIER]), st.sampled_from(["economic", "classic"]))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=QUIRKS)
def test_a_session_that_only_grew_repeats_every_byte_up_to_the_last_marker(
    session: list[Body], mode: Mode, policy: str
) -> None:
    talk = Talk(mode=mode, policy=policy)
    before: list[Block] = []
    had_images = False
    for body in session:
        # The first image breaks a prefix at the provider: nothing is read any more, and the layout is chosen anew.
        has_images = "image_url" in json.dumps(body["messages"])
        before, had_images = before if has_images == had_images else [], has_images
        plan = talk.send({k: v for k, v in body.items() if k in ("model", "messages", "tools")}, after_s=9.0)
        now = [block for block, _ in blocks(json.loads(plan.body))]
        if "<stratiform-context>" not in plan.body.decode():
            assert now[: len(before)] == before
        before = _up_to_last_marker(plan)


@given(aider_sessions(most=2).filter(lambda s: len(s) == 2), st.integers(1, 3))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=QUIRKS)
def test_where_only_the_active_tail_changed_the_rest_is_read(session: list[Any], times: int) -> None:
    """The same files, another turn behind: everything up to the last marker is read, or little of it is given up."""
    # Without the client's reminder: the next request has it no more where it stood. Files of a size that counts.
    files = tuple(replace(file, content=file.content + lines(40, file.path)) for file in session[0].files)
    talk, chat = Talk(), replace(session[0], reminder="", files=files)
    plan = talk.send(_bare_request(chat.body()), after_s=9.0)
    for number in range(times):
        answered = (*chat.reflections, (chat.prompt, f"answer {number}"))
        chat = replace(chat, history=(*chat.history, *answered), reflections=(), prompt=f"question {number}")
        before, marked = plan.predicted, _up_to_last_marker(plan)
        plan = talk.send(_bare_request(chat.body()), after_s=9.0)
        assert before is not None
        assert plan.predicted is not None
        if before.read + before.write_5m - plan.predicted.read > 0.1 * plan.predicted.total:
            now = [block for block, _ in blocks(json.loads(plan.body))]
            assert now[: len(marked)] == marked, plan.reason
            assert plan.predicted.hit >= len(marked) - 1


def _bare_request(body: Body) -> Body:
    return {k: v for k, v in body.items() if k in ("model", "messages")}
