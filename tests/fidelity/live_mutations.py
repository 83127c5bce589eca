"""Ways to spoil a body with panels, beside those of mutations.py. Each returns a spoilt copy, or None where it does not
apply; all must be caught."""

import copy
from collections.abc import Callable

from hypothesis import strategies as st

from . import live_words as words
from . import mutations
from .live_history import calls_of, role_of
from .live_pieces import is_ours
from .live_strategies import Body
from .mutations import Mutation


def _pairs(body: Body) -> list[int]:
    """Where pairs of ours begin, the end of the panels included."""
    return [at for at, message in enumerate(body["messages"]) if is_ours(message)]


def _moved(draw: st.DrawFn, body: Body, allowed: Callable[[list[Body], int], bool]) -> Body | None:
    """A pair at another place, of those that are allowed: in front of the message of this index of the others."""
    pairs = _pairs(body)
    if not pairs:
        return None
    at = draw(st.sampled_from(pairs))
    messages = body["messages"]
    pair = messages[at : at + 2]
    rest = [*messages[:at], *messages[at + 2 :]]
    targets = [there for there in range(len(rest) + 1) if there != at and allowed(rest, there)]
    if not targets:
        return None
    there = draw(st.sampled_from(targets))
    return {**body, "messages": [*rest[:there], *pair, *rest[there:]]}


def drop_pair(draw: st.DrawFn, body: Body) -> Body | None:
    """A panel less, or their end."""
    pairs = _pairs(body)
    if not pairs:
        return None
    at = draw(st.sampled_from(pairs))
    del body["messages"][at : at + 2]
    return body


def drop_half(draw: st.DrawFn, body: Body) -> Body | None:
    """A call of ours without its result, or the result without its call."""
    pairs = _pairs(body)
    if not pairs:
        return None
    del body["messages"][draw(st.sampled_from(pairs)) + draw(st.integers(0, 1))]
    return body


def repeat_pair(draw: st.DrawFn, body: Body) -> Body | None:
    """A panel, or their end, twice."""
    pairs = _pairs(body)
    if not pairs:
        return None
    at = draw(st.sampled_from(pairs))
    there = draw(st.sampled_from([*pairs, len(body["messages"])]))
    body["messages"][there:there] = copy.deepcopy(body["messages"][at : at + 2])
    return body


def swap_halves(draw: st.DrawFn, body: Body) -> Body | None:
    """A result in front of its call."""
    pairs = _pairs(body)
    if not pairs:
        return None
    at = draw(st.sampled_from(pairs))
    body["messages"][at : at + 2] = body["messages"][at : at + 2][::-1]
    return body


def part_a_call(draw: st.DrawFn, body: Body) -> Body | None:
    """A pair between a call and its result."""
    return _moved(draw, body, lambda rest, at: at < len(rest) and role_of(rest[at]) == "tool")


def part_an_exchange(draw: st.DrawFn, body: Body) -> Body | None:
    """A pair between a question and an answer that does not call anything."""

    def is_within(rest: list[Body], at: int) -> bool:
        if not 0 < at < len(rest) or role_of(rest[at - 1]) != "user" or role_of(rest[at]) != "assistant":
            return False
        return not calls_of(rest[at])

    return _moved(draw, body, is_within)


def behind_the_prompt(draw: st.DrawFn, body: Body) -> Body | None:
    """A pair behind the last user message."""
    return _moved(draw, body, lambda rest, at: at == len(rest) and role_of(rest[-1]) == "user")


def other_panel(draw: st.DrawFn, body: Body) -> Body | None:
    """The result of one call under another's id."""
    pairs = _pairs(body)
    if len(pairs) < 2:
        return None
    one, other = draw(st.permutations(pairs))[:2]
    messages = body["messages"]
    messages[one + 1]["content"], messages[other + 1]["content"] = (
        messages[other + 1]["content"],
        messages[one + 1]["content"],
    )
    return body


def stamp_in_the_future(draw: st.DrawFn, body: Body) -> Body | None:
    """A time that has not come, above a panel or in front of a question."""
    begins = (words.STAMP, words.BEGINNING, words.DATETIME)
    places = [m for m in body["messages"] if isinstance(m.get("content"), str) and m["content"].startswith(begins)]
    places = [m for m in places if m["content"].endswith(":00Z") and "T" in m["content"]]
    if not places:
        return None
    message = draw(st.sampled_from(places))
    message["content"] = message["content"][: -len("2026-02-19T14:00:00Z")] + "2999-01-01T00:00:00Z"
    return body


def drop_the_question_time(draw: st.DrawFn, body: Body) -> Body | None:
    """No time in front of a request's last message, where panels are shown."""
    messages = body["messages"]
    if len(messages) < 2 or role_of(messages[-1]) != "user" or not _pairs(body):
        return None
    if not str(messages[-2].get("content")).startswith(words.DATETIME):
        return None
    del messages[-2]
    return body


GENERAL: tuple[Mutation, ...] = (
    mutations.drop_character, mutations.change_character, mutations.add_text, mutations.insert_message,
    mutations.swap_neighbours, mutations.move_to_end, mutations.change_role, mutations.add_key,
    mutations.drop_tool_call, mutations.swap_tool_results, mutations.change_parameter, mutations.drop_parameter,
    mutations.add_parameter,
)  # fmt: skip
OWN: tuple[Mutation, ...] = (
    drop_pair, drop_half, repeat_pair, swap_halves, part_a_call, part_an_exchange, behind_the_prompt, other_panel,
    stamp_in_the_future, drop_the_question_time,
)  # fmt: skip
