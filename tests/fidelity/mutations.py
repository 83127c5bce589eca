"""Ways to spoil a forwarded body. Each returns a spoilt copy, or None where it does not apply; all must be caught."""

import copy
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from . import words
from .strategies import Body

Mutation = Callable[[st.DrawFn, Body], Body | None]
Text = tuple[Any, Any]


def texts_of(body: Body) -> list[Text]:
    """(holder, key) of every text that reaches the model, tool arguments included."""
    found: list[Text] = []
    for message in body["messages"]:
        content = message.get("content")
        if isinstance(content, str):
            found.append((message, "content"))
        elif isinstance(content, list):
            found += [(part, "text") for part in content if isinstance(part.get("text"), str)]
        for call in message.get("tool_calls", []):
            found.append((call["function"], "arguments"))
    return [(holder, key) for holder, key in found if holder[key]]


def _is_edge_newline(text: str, at: int) -> bool:
    """A newline at the edge of a text or beside another: blank lines between files are the layout's."""
    return text[at] == "\n" and (at in (0, len(text) - 1) or "\n" in (text[at - 1], text[at + 1]))


def _pick_character(draw: st.DrawFn, body: Body) -> tuple[Any, Any, int] | None:
    places = [
        (holder, key, at)
        for holder, key in texts_of(body)
        for at in range(len(holder[key]))
        if not _is_edge_newline(holder[key], at)
    ]
    return draw(st.sampled_from(places)) if places else None


def drop_character(draw: st.DrawFn, body: Body) -> Body | None:
    """One character less."""
    picked = _pick_character(draw, body)
    if picked is None:
        return None
    holder, key, at = picked
    holder[key] = holder[key][:at] + holder[key][at + 1 :]
    return body


def change_character(draw: st.DrawFn, body: Body) -> Body | None:
    """One character is another."""
    picked = _pick_character(draw, body)
    if picked is None:
        return None
    holder, key, at = picked
    holder[key] = holder[key][:at] + ("X" if holder[key][at] != "X" else "Y") + holder[key][at + 1 :]
    return body


def add_text(draw: st.DrawFn, body: Body) -> Body | None:
    """A word more, somewhere."""
    texts = texts_of(body)
    if not texts:
        return None
    holder, key = draw(st.sampled_from(texts))
    at = draw(st.integers(0, len(holder[key])))
    holder[key] = holder[key][:at] + "surely " + holder[key][at:]
    return body


def glue_lines(draw: st.DrawFn, body: Body) -> Body | None:
    """Two lines as one, of one part or of two neighbours; the line break stands at the end of the message."""
    places: list[tuple[list[Body], int, int]] = []
    for message in body["messages"]:
        content = message.get("content")
        parts = [{"text": content}] if isinstance(content, str) else content or []
        if all(isinstance(part.get("text"), str) for part in parts):
            for number, part in enumerate(parts):
                text, behind = part["text"], "".join(other["text"] for other in parts[number + 1 :])
                places += [(parts, number, at) for at in range(1, len(text)) if _parts_lines(text + behind, at)]
        if isinstance(content, str):
            message["content"] = parts
    if not places:
        return None
    parts, number, at = draw(st.sampled_from(places))
    parts[number]["text"] = parts[number]["text"][:at] + parts[number]["text"][at + 1 :]
    parts[-1]["text"] += "\n"
    for message in body["messages"]:
        content = message.get("content")
        if isinstance(content, list) and len(content) == 1 and content[0].keys() == {"text"}:
            message["content"] = content[0]["text"]
    return body


def _parts_lines(text: str, at: int) -> bool:
    """Whether a line that says something ends here, and another such line begins."""
    return text[at] == "\n" and bool(text[at - 1].strip()) and bool(text[at + 1 : at + 2].strip())


def drop_message(draw: st.DrawFn, body: Body) -> Body | None:
    """A message less."""
    messages = body["messages"]
    del messages[draw(st.integers(0, len(messages) - 1))]
    return body


def repeat_message(draw: st.DrawFn, body: Body) -> Body | None:
    """A message twice, at any place."""
    messages = body["messages"]
    message = messages[draw(st.integers(0, len(messages) - 1))]
    messages.insert(draw(st.integers(0, len(messages))), copy.deepcopy(message))
    return body


def repeat_part(draw: st.DrawFn, body: Body) -> Body | None:
    """A part twice."""
    lists = [m["content"] for m in body["messages"] if isinstance(m.get("content"), list)]
    if not lists:
        return None
    parts = draw(st.sampled_from(lists))
    parts.insert(draw(st.integers(0, len(parts))), copy.deepcopy(draw(st.sampled_from(parts))))
    return body


def insert_message(draw: st.DrawFn, body: Body) -> Body | None:
    """A message that nobody sent."""
    message = draw(st.sampled_from([
        {"role": "user", "content": "and be quick"}, {"role": "system", "content": "Be quick."},
        {"role": "assistant", "content": "Sure, quick."},
        {"role": "user", "content": "These documents are provided for reference.\n\nx"},
    ]))  # fmt: skip
    messages = body["messages"]
    messages.insert(draw(st.integers(0, len(messages))), dict(message))
    return body


def _swapped(draw: st.DrawFn, body: Body, places: list[int]) -> Body | None:
    """The message at one of these places behind its successor."""
    if not places:
        return None
    messages, at = body["messages"], draw(st.sampled_from(places))
    messages[at], messages[at + 1] = messages[at + 1], messages[at]
    return body


def swap_neighbours(draw: st.DrawFn, body: Body) -> Body | None:
    """Two neighbours of different roles in the other order."""
    pairs = enumerate(pairwise(body["messages"]))
    return _swapped(draw, body, [i for i, (one, other) in pairs if one["role"] != other["role"]])


def move_to_end(draw: st.DrawFn, body: Body) -> Body | None:
    """A message behind the last exchange. (Not the tag: behind tool results it may stand there.)"""
    messages = body["messages"]
    places = [i for i, m in enumerate(messages[:-1]) if words.TAG_OPEN not in str(m["content"])]
    if not places:
        return None
    messages.append(messages.pop(draw(st.sampled_from(places))))
    return body


def other_header(draw: st.DrawFn, body: Body) -> Body | None:
    """The files of a part under a header that says something else."""
    places = [(h, k, w) for h, k in texts_of(body) for w in words.HEADERS.values() if h[k].startswith(w)]
    if not places:
        return None
    holder, key, header = draw(st.sampled_from(places))
    other = draw(st.sampled_from([word for word in words.HEADERS.values() if word != header]))
    holder[key] = other + holder[key].removeprefix(header)
    return body


def repeat_tag(draw: st.DrawFn, body: Body) -> Body | None:
    """The tag a second time, beside the first."""
    tags = [i for i, m in enumerate(body["messages"]) if m["content"] and str(m["content"]).startswith(words.TAG_OPEN)]
    if not tags:
        return None
    body["messages"].insert(tags[0], copy.deepcopy(body["messages"][tags[0]]))
    return body


def change_role(draw: st.DrawFn, body: Body) -> Body | None:
    """A message in another's mouth."""
    message = draw(st.sampled_from(body["messages"]))
    message["role"] = {"system": "developer", "developer": "system", "user": "system"}.get(message["role"], "user")
    return body


def add_key(draw: st.DrawFn, body: Body) -> Body | None:
    """An unknown key on a message."""
    draw(st.sampled_from(body["messages"]))["name"] = "somebody else"
    return body


def drop_tool_call(draw: st.DrawFn, body: Body) -> Body | None:
    """A tool call less."""
    callers = [m for m in body["messages"] if m.get("tool_calls")]
    if not callers:
        return None
    calls = draw(st.sampled_from(callers))["tool_calls"]
    del calls[draw(st.integers(0, len(calls) - 1))]
    return body


def swap_tool_results(draw: st.DrawFn, body: Body) -> Body | None:
    """Two results of one turn in the other order."""
    pairs = enumerate(pairwise(body["messages"]))
    return _swapped(draw, body, [i for i, (one, other) in pairs if one["role"] == other["role"] == "tool"])


def change_parameter(draw: st.DrawFn, body: Body) -> Body | None:
    """A parameter with another value or type."""
    names = [name for name in body if name not in ("messages", "model", "stream_options")]
    if not names:
        return None
    name = draw(st.sampled_from(names))
    value = body[name]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    body[name] = (float(value) if isinstance(value, int) else value + 1) if number else [value]
    return body


def drop_parameter(draw: st.DrawFn, body: Body) -> Body | None:
    """A parameter less."""
    names = [name for name in body if name not in ("messages", "stream_options", "stratiform")]
    del body[draw(st.sampled_from(names))]
    return body


def add_parameter(draw: st.DrawFn, body: Body) -> Body | None:
    """A parameter more."""
    body[draw(st.sampled_from(["logit_bias", "cache_control", "prompt_cache_key"]))] = {"1": 1}
    return body


def mark_wrongly(draw: st.DrawFn, body: Body) -> Body | None:
    """A marker where none of ours may stand: on an assistant, or on the message around a user's or system's text."""
    places = [m for m in body["messages"] if m["role"] != "tool" and "cache_control" not in m]
    if not places:
        return None
    draw(st.sampled_from(places))["cache_control"] = {"type": "ephemeral"}
    return body


MUTATIONS: tuple[Mutation, ...] = (
    drop_character, change_character, add_text, glue_lines, drop_message, repeat_message, repeat_part, insert_message,
    swap_neighbours, move_to_end, other_header, repeat_tag, change_role, add_key, drop_tool_call, swap_tool_results,
    change_parameter, drop_parameter, add_parameter, mark_wrongly,
)  # fmt: skip
