"""A chat request as the embedded provider reads it: checked, and laid out as its cache sees it."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from proxy.core.value import dataclass
from proxy.core.wire.json_body import Unreadable, decoded_array, decoded_object
from proxy.core.wire.surrogates import printable
from proxy.upstream.embedded.blocks import Block, forbid, parsed_value, refuse
from proxy.upstream.embedded.turns import SYSTEM_ROLES, Turn, TurnReader

_MAX_CHOICES = 128
_OPENING_BYTES = 1024

# Members that are read as raw JSON, block by block. All other members are small, and are parsed.
_LARGE = frozenset({"messages", "tools"})


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A chat request. ``head`` is the number of turns in the system section. ``settings`` is the body without messages
    and tools. ``opening`` are the body's first bytes."""

    model: str
    turns: tuple[Turn, ...]
    head: int
    tools: tuple[Block, ...]
    tool_names: tuple[str, ...]
    settings: Mapping[str, Any]
    stream: bool
    include_usage: bool
    opening: bytes = b""


def read_chat(body: bytes, reader: TurnReader) -> ChatRequest:
    """The request. Raises UpstreamRejected (400) if the provider would refuse it."""
    members = read_object(body)
    settings = {name: parsed_value(bytes(raw), name) for name, raw in members.items() if name not in _LARGE}
    model = check_model(settings)
    forbid(settings, "", reader.profile)
    if "stratiform" in settings:
        raise refuse("Unknown parameter: 'stratiform'.", "stratiform", "unknown_parameter")
    turns = _turns(members, reader)
    _check_tool_turns(turns)
    _check_numbers(settings)
    raw_tools = members.get("tools")
    tools, names = _tools(bytes(raw_tools), reader) if raw_tools is not None else ((), ())
    options = settings.get("stream_options")
    stream = settings.get("stream") is True
    if options is not None and not stream:
        raise refuse("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")
    return ChatRequest(
        model=model,
        turns=turns,
        head=next((i for i, turn in enumerate(turns) if turn.role not in SYSTEM_ROLES), len(turns)),
        tools=tools,
        tool_names=names,
        settings=settings,
        stream=stream,
        include_usage=wants_usage(settings),
        opening=body[:_OPENING_BYTES],
    )


def check_model(settings: Mapping[str, Any]) -> str:
    """The model that a request names. Raises UpstreamRejected if it names none."""
    model = settings.get("model")
    if not isinstance(model, str) or not model or printable(model) != model:
        raise refuse("you must provide a model parameter", "model", "missing_required_parameter")
    return model


def wants_usage(settings: Mapping[str, Any]) -> bool:
    """Whether a stream must end with its usage."""
    options = settings.get("stream_options")
    return isinstance(options, Mapping) and options.get("include_usage") is True


def read_object(body: bytes) -> Mapping[str, Raw]:
    """The members of a JSON object."""
    try:
        return decoded_object(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise refuse("We could not parse the JSON body of your request.") from error


def _turns(members: Mapping[str, Raw], reader: TurnReader) -> tuple[Turn, ...]:
    if "messages" not in members:
        raise refuse("Missing required parameter: 'messages'.", "messages", "missing_required_parameter")
    try:
        messages = decoded_array(members["messages"])
    except (msgspec.DecodeError, Unreadable) as error:
        raise refuse(
            "Invalid type for 'messages': expected an array of objects.", "messages", "invalid_type"
        ) from error
    if not messages:
        raise refuse("Invalid 'messages': empty array. Expected at least one message.", "messages", "empty_array")
    return tuple(reader.turn(bytes(raw), f"messages[{i}]") for i, raw in enumerate(messages))


def _check_tool_turns(turns: Sequence[Turn]) -> None:
    """Check that every tool call is answered directly after it, and that no message answers a call that was not
    made."""
    open_calls: set[str] = set()
    for i, turn in enumerate(turns):
        if turn.answers is not None and turn.answers not in open_calls:
            raise refuse(
                "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
                f"messages[{i}].role",
            )
        if turn.answers is None and open_calls:
            raise refuse(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                "'tool_call_id'.",
                f"messages[{i}].role",
            )
        open_calls = set(turn.call_ids) if turn.answers is None else open_calls - {turn.answers}
    if open_calls:
        raise refuse(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            "'tool_call_id'.",
            "messages",
        )


def _check_numbers(settings: Mapping[str, Any]) -> None:
    for name in ("max_tokens", "max_completion_tokens", "n"):
        number = settings.get(name)
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise refuse(f"Invalid '{name}': expected an integer of at least 1.", name, "integer_below_min_value")
    if (settings.get("n") or 1) > _MAX_CHOICES:
        raise refuse(f"Invalid 'n': expected at most {_MAX_CHOICES}.", "n", "integer_above_max_value")


def _tools(raw: bytes, reader: TurnReader) -> tuple[tuple[Block, ...], tuple[str, ...]]:
    if raw == b"null":
        return (), ()
    blocks = reader.tools(raw)
    functions = [tool.get("function") for tool in parsed_value(raw, "tools")]
    return blocks, tuple(printable(str(f.get("name"))) for f in functions if isinstance(f, Mapping))
