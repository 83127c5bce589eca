"""Requests on paths that are passed through: how much of them is read, and which call is sent."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import NoReturn

import orjson

from proxy.core.access.reach import Values
from proxy.core.access.unambiguous import CheckedBody, unambiguous
from proxy.core.account.objects import Act
from proxy.core.digest import digest
from proxy.core.request.parsed_body import ParsedBody
from proxy.core.request.routing_fields import NO_UTF8, TOO_DEEP, RequestFields, head_of, renamed
from proxy.core.value import dataclass
from proxy.core.wire.json_body import splice
from proxy.core.wire.scan import replaced
from proxy.engine.bodies.upload import Upload
from proxy.engine.exchange import Exchange
from proxy.engine.headers import content_length, for_upstream, get, with_id
from proxy.engine.ports import Client
from proxy.engine.target import sent_query
from proxy.errors import InvalidRequest
from proxy.ports import Call, Deployment, Headers, Principal

# Paths below an object whose content may be of any length and says nothing about objects.
_CONTENT = frozenset({"content", "results", "files"})


@dataclass(frozen=True, slots=True)
class Raw:
    """A request as far as it was read. ``head`` is None if it is no JSON object. ``members`` are the members of that
    object, or None if they are not known for sure. ``is_unread``: the body is compressed, and may name a model."""

    body: bytes | AsyncIterator[bytes] | Upload
    head: RequestFields | None = None
    members: Values | None = None
    is_unread: bool = False
    is_form: bool = False
    """A form that is checked as it arrives."""

    @property
    def size(self) -> int:
        """How many bytes were read."""
        return len(self.body) if isinstance(self.body, bytes) else 0

    def may_repeat(self, exchange: Exchange) -> bool:
        """Whether sending the request twice does no more than sending it once. An upload cannot be repeated, because it
        is gone once it was read."""
        is_harmless = exchange.arrival.method in ("GET", "HEAD") or exchange.asks_model
        return isinstance(self.body, bytes) and is_harmless


def peeked_head(body: bytes) -> RequestFields | None:
    """The head of a JSON body. None for every other body: if it is no valid JSON after all, the upstream refuses it.
    Raises InvalidRequest for a body that the upstream may be able to read and the proxy cannot."""
    try:
        return head_of(body) if body else None
    except InvalidRequest as error:
        if error.code in (NO_UTF8, TOO_DEEP):
            raise
        return None


def is_compressed(client: Client) -> bool:
    """Whether the request's body is compressed."""
    return any(value not in ("", "identity") for name, value in client.headers if name == "content-encoding")


def refuse_compressed() -> NoReturn:
    """Refuse a compressed body: a few kilobytes can become gigabytes when they are unpacked. Raises InvalidRequest."""
    raise InvalidRequest(
        "compressed request bodies are not read here, and this one's model must be known: send it as it is",
        code="unsupported_encoding",
    )


def raw_call(
    exchange: Exchange,
    client: Client,
    deployment: Deployment,
    raw: Raw,
    path: str,
    further_members: Mapping[str, bytes] | None = None,
) -> Call:
    """A call on a path that is passed through. It has the deployment's name for the model, and a JSON body that was
    parsed gets ``further_members``."""
    body, head = raw.body, raw.head
    length = None if isinstance(body, bytes) else get(client.headers, "content-length")
    if isinstance(body, Upload):
        name = deployment.model if head is not None else ""
        length, body = body.length(name), body.body(name)
    elif isinstance(body, bytes) and head is not None:
        body = renamed(body, head, deployment.model, further_members)
    # An answer to JSON may carry usage, which cannot be read from compressed bytes.
    shows_objects = (
        exchange.objects.operation.act not in (Act.ASK, Act.UNKNOWN)
        and exchange.objects.operation.below not in _CONTENT
    )
    reads = shows_objects or ((head is not None or raw.is_unread) and isinstance(body, bytes))
    accept = "identity" if reads else get(client.headers, "accept-encoding")
    further = [] if length is None else [("content-length", length)]
    return call_to(deployment, exchange, client, path, body, further, accept)


def call_to(
    deployment: Deployment,
    exchange: Exchange,
    client: Client,
    path: str,
    body: bytes | AsyncIterator[bytes],
    further: Headers = (),
    accept_encoding: str | None = "identity",
) -> Call:
    """A call to a deployment: the client's own headers, as far as they pass, and ``further`` ones."""
    principal, arrival = exchange.admitted, exchange.arrival
    headers: Headers = for_upstream(
        client.headers,
        deployment,
        is_virtual=principal.virtual,
        forwards_key=principal.forwards_key,
        accept_encoding=accept_encoding,
    )
    if arrival.tells_id:
        headers = with_id(headers, deployment, arrival.request_id)
    return Call(
        deployment=deployment,
        method=client.method,
        path=path,
        query=sent_query(client, deployment, principal),
        headers=[*headers, *further],
        body=_salted(body, principal) if deployment.salts_cache and isinstance(body, bytes) else body,
        stream=exchange.requested.stream,
        now=arrival.now,
        forwards_key=principal.forwards_key,
    )


def _salted(body: bytes, principal: Principal) -> bytes:
    """The request with a salt, so that only its own team finds its entries in the engine's cache. vLLM and SGLang treat
    ``cache_salt`` as part of the prompt. If a member occurs twice, their parsers take the last one, so a client's own
    salt does not count."""
    whole = body.strip(b" \t\r\n")
    if not whole.startswith(b"{") or not whole.endswith(b"}") or b'"' not in whole:
        return body
    whose = principal.scope if principal.forwards_key else principal.team
    return b'%b,"cache_salt":"%b"}' % (whole[:-1], digest(b"salt", whose.encode()).hex().encode())


def json_length(client: Client) -> int:
    """The declared length of a JSON body that is too long to be read here. 0 for other uploads, because they are no
    prompts."""
    return content_length(client.headers) or 0 if is_json(client) else 0


def is_json(client: Client) -> bool:
    """Whether the content type says that the body is JSON."""
    return any("json" in value.lower() for name, value in client.headers if name == "content-type")


def has_body(client: Client) -> bool:
    """Whether the request has a body."""
    length = get(client.headers, "content-length")
    return get(client.headers, "transfer-encoding") is not None or length not in (None, "0")


def addressed(reading: CheckedBody, model: str, parse: Callable[[bytes], ParsedBody]) -> CheckedBody:
    """The request with this model in its body, in place of any other model. It is unchanged if ``model`` is empty. A
    model that is named in the address, as on Azure, is written into the body before anything else is read of it, so
    rights, budgets and plans apply to that model."""
    if not model or reading.head.model == model:
        return reading
    parsed, name = reading.head.parsed, orjson.dumps(model)
    if parsed is None:
        body = replaced(reading.body, "model", name)
    else:
        body = splice(reading.body, parsed.members, {"model": name}, parsed.span)
    return unambiguous(body, head_of(body, parse))


def check_addressed(exchange: Exchange) -> None:
    """Raises InvalidRequest for a body that does not ask for the model that the address names: a form, or a body that
    cannot be parsed."""
    if exchange.arrival.addressed and exchange.requested.model != exchange.arrival.addressed:
        raise InvalidRequest(
            "The path names a model, and the body cannot be given it: write the same name into its 'model', and send "
            "JSON uncompressed.",
            param="model",
            code="model_mismatch",
        )
