"""The few members of a request body that decide where it goes and how its answer is read."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec
import orjson
from msgspec import Raw

from proxy.core.request.demand import MEMBERS
from proxy.core.request.parsed_body import ParsedBody, parse_body
from proxy.core.value import dataclass
from proxy.core.wire.json_body import Members, Unreadable, splice, transport_edits, usage_asked, value
from proxy.core.wire.scan import replaced
from proxy.core.wire.surrogates import read_or_mended
from proxy.errors import InvalidRequest

_OWN_NAMES = ("model", "stream", "stream_options", "user")
HEAD_NAMES = (*_OWN_NAMES, *MEMBERS)
"""The members that decide where a request goes and what it may cost."""
NO_UTF8 = "invalid_encoding"
TOO_DEEP = "too_deep"
_MOST_BYTES = 16 << 10
UTF8_MARK = b"\xef\xbb\xbf"
# Blanks, the zero bytes of wider characters, and either byte order mark.
_BEFORE_AN_OBJECT = b"\x00 \t\r\n\xff\xfe"

_NULL = Raw(b"null")
_FEW = msgspec.json.Decoder(msgspec.defstruct("Few", [(name, Raw, _NULL) for name in HEAD_NAMES]))


@dataclass(frozen=True, slots=True)
class RequestFields:
    """``parsed`` is None if the body is valid JSON that the proxy cannot parse into members. ``asked`` are the members
    that say what the request may cost (``proxy.core.request.demand``); None if they were not read."""

    model: str
    stream: bool
    wants_usage: bool
    parsed: ParsedBody | None
    asked: Mapping[str, Raw | bytes] | None = None
    user: str = ""
    """The end user that the client names in the request."""

    @property
    def members(self) -> Members | None:
        """The body's members; None if it was not parsed into members."""
        return self.parsed.members if self.parsed is not None else None

    @property
    def lacks_usage(self) -> bool:
        """Whether the client streams and does not ask for usage, so that the proxy must ask for it."""
        if not self.stream or self.wants_usage or self.parsed is None:
            return False
        return usage_asked(self.parsed.members.get("stream_options")) is not None


def head_of(body: bytes, parse: Callable[[bytes], ParsedBody] = parse_body) -> RequestFields:
    """Read the head of a JSON request. Raises InvalidRequest if the body is no JSON object. If other parsers may accept
    the body and only the proxy cannot, the ``code`` of the error is NO_UTF8 or TOO_DEEP."""
    parsed, found, asked = _read(body, parse)
    options = found.get("stream_options")
    model, user = found.get("model"), found.get("user")
    # Half of a character (a lone surrogate) cannot be sent on.
    is_model = isinstance(model, str) and (model.isascii() or not any("\ud800" <= c <= "\udfff" for c in model))
    return RequestFields(
        model=model if isinstance(model, str) and is_model else "",
        stream=found.get("stream") is True,
        wants_usage=isinstance(options, dict) and options.get("include_usage") is True,
        parsed=parsed,
        asked=asked,
        user=user if isinstance(user, str) else "",
    )


def untouched(body: bytes, head: RequestFields, model: str, *, asks_usage: bool = True) -> bytes:
    """The request with only those edits that every mode makes. They are made from the head alone: the messages stay
    unread."""
    parsed = head.parsed
    if parsed is None:
        return renamed(body, head, model)
    edits = transport_edits(parsed.members, head.model, model, asks_usage=asks_usage and head.lacks_usage)
    return splice(body, parsed.members, edits, parsed.span)


def renamed(body: bytes, head: RequestFields, model: str, further: Mapping[str, bytes] | None = None) -> bytes:
    """The request with another model's name, also if the body was not parsed into members. If it was, the request also
    gets the ``further`` members."""
    name = {"model": orjson.dumps(model)} if head.model and head.model != model else {}
    if head.parsed is None:
        return replaced(body, "model", name["model"]) if name else body
    return splice(body, head.parsed.members, {**name, **(further or {})})


_Read = tuple[ParsedBody | None, Mapping[str, object], Mapping[str, Raw | bytes]]


def _read(body: bytes, parse: Callable[[bytes], ParsedBody]) -> _Read:
    try:
        parsed = parse(body)
        members = parsed.members
        found = {name: _small(name, members[name]) for name in _OWN_NAMES if name in members}
        return parsed, found, {name: members[name] for name in MEMBERS if name in members}
    except Unreadable:
        _check_encoding(body)
        return None, *_slow(body)
    except InvalidRequest:
        _check_encoding(body)
        _check_depth(body)
        raise


def _check_encoding(body: bytes) -> None:
    """Raises InvalidRequest for JSON in UTF-16 or UTF-32. Python's own JSON reads them, and so do servers, but the
    proxy cannot edit such bytes. Other bytes (a film begins with zeros) are no JSON for any parser."""
    encoding = json.detect_encoding(body)
    if not encoding.startswith("utf-8") and body.lstrip(_BEFORE_AN_OBJECT).startswith(b"{"):
        message = (
            f"the body is not UTF-8 but looks like {encoding.upper()}; JSON is sent as UTF-8 (RFC 8259 section 8.1)"
        )
        raise InvalidRequest(message, code=NO_UTF8)


def _check_depth(body: bytes) -> None:
    try:
        _FEW.decode(body)
    except RecursionError as error:
        raise InvalidRequest("the body is JSON that is nested too deeply", code=TOO_DEEP) from error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return


def _slow(body: bytes) -> tuple[Mapping[str, object], Mapping[str, Raw | bytes]]:
    """The same members, read from a body that is not parsed into members. All other members are skipped and not
    decoded."""
    found = read_or_mended(_FEW.decode, body)
    if found is not None:
        own: dict[str, object] = {}
        for name in _OWN_NAMES:
            with suppress(Unreadable):
                own[name] = _small(name, getattr(found, name))
        return own, {name: getattr(found, name) for name in MEMBERS if getattr(found, name) is not _NULL}
    try:
        # Python's own JSON has NaN, too. Large bodies were refused before.
        parsed = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("the body is not a JSON object", code="invalid_json") from error
    if not isinstance(parsed, dict):
        return {}, {}
    return parsed, {name: json.dumps(parsed[name]).encode() for name in MEMBERS if name in parsed}


def _small(name: str, raw: Raw) -> object:
    """A member of the head, which is a name, a number or a few options. Raises InvalidRequest, Unreadable."""
    if len(raw) > _MOST_BYTES:
        raise InvalidRequest(f"'{name}' is longer than {_MOST_BYTES} bytes; shorten it", param=name)
    return value(raw)
