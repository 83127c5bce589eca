"""Reads the bodies of requests as far as necessary, and makes the calls that carry them upstream.

A multipart form (RFC 7578, RFC 2046 section 5.1) is scanned for its field ``model`` as it arrives. The model that is
found is checked against the models of the client's key, and then the upstream reads the form again. Therefore
everything that two readers could understand differently is refused. Line ends may be CR LF or LF, because lenient
readers accept both.

Uploads on the paths of audio, images and videos name a model in such a form. The official Python client sends a form's
fields before its file, and other clients send them after it. So a form is held back until its model is known, and
streamed from there on. How long its audio lasts at the most is read from its bytes.

The other functions say how much of a body is read on paths that are passed through, which call is sent, and how a model
that the address names gets into the body.
"""

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from io import BytesIO
from typing import NoReturn
from urllib.parse import unquote

import orjson
from tinytag import TinyTag, TinyTagException

from proxy.engine.exchange import Call, Exchange, Principal
from proxy.engine.headers import for_upstream, form_of, get, sent_query, with_id
from proxy.engine.ports import Client
from proxy.kit.errors import InvalidRequest
from proxy.kit.value import dataclass, digest
from proxy.models import Deployment, Headers
from proxy.protocol.access import unambiguous
from proxy.protocol.account import Act, Path
from proxy.protocol.request import NO_UTF8, TOO_DEEP, ParsedBody, RequestFields, head_of

_MOST_HEAD_BYTES = 16 << 10
_MOST_NAME_BYTES = 1024
_MOST_PADDING_BYTES = 256
# The number that servers accept by default: a thousand fields, and a thousand files.
_MOST_PARTS = 2_000
_NO_HEAD = re.compile(rb"\r?\n")
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_HEAD_END_BYTES = 4
_FOLD = re.compile(r"\r?\n[ \t]++")
_LINE = re.compile(r"\r?\n")
_PARAMETER = re.compile(r';\s*+([^\s=;"]++)\s*+=\s*+("[^"\\]*+(?:\\.[^"\\]*+)*+"|[^;]*+)')
_ESCAPED = re.compile(r"\\(.)")
_MOST_PARAM_CHARS = 128
_PLAIN_ENCODINGS = frozenset({"", "7bit", "8bit", "binary"})


class FormScan:
    """One form. ``model`` is the field's value, and ``span`` is its place in the form. Both are None until they are
    known. ``refuses`` returns whether the form must not have a field of that name.

    Each byte that arrives is scanned once, however the form is cut into chunks. ``_position`` is where the next scan
    begins in the bytes that are still kept. ``_searched`` is how far the end of a part's headers has been searched for.
    ``_state`` is the method that continues the scan. It returns whether there may be more to scan.
    """

    def __init__(self, boundary: bytes, refuses: Callable[[str], bool] | None = None) -> None:
        self._refuses = refuses
        self.is_strict = refuses is not None
        """Whether some fields are refused, so that all of the form must be read."""
        self._delimiter = b"\n--" + boundary
        # The first delimiter may be at the very beginning.
        self._tail, self._at = b"\n", -1
        self._position = self._searched = self._parts = 0
        self._state: Callable[[FormScan], bool] = FormScan._in_body
        self._value_at: int | None = None
        self._file_at: int | None = None
        self.files: list[tuple[int, int]] = []
        """The places of those files in the form that have arrived completely."""
        self.model: str | None = None
        self.span: tuple[int, int] | None = None

    def feed(self, chunk: bytes) -> None:
        """Take a chunk that arrived. Raises InvalidRequest if this is no valid form, or if it has two models."""
        self._tail += chunk
        while self._state(self):
            pass
        self._tail = self._tail[self._position :]
        self._at += self._position
        self._searched -= self._position
        self._position = 0

    def _in_body(self) -> bool:
        """In a part, or before the first one: a delimiter comes next."""
        found = self._tail.find(self._delimiter, self._position)
        if found < 0:
            # The bytes after this position may be the beginning of the delimiter.
            edge = len(self._tail) - len(self._delimiter)
            if self._value_at is None:
                self._position = max(self._position, edge)
            else:
                self._check_length(edge - self._position)
            return False
        if self._value_at is not None:
            self._keep(found)
        if self._file_at is not None:
            self.files.append((self._file_at, self._at + found))
            self._file_at = None
        self._position = found + len(self._delimiter)
        self._state = FormScan._in_line
        return True

    def _keep(self, delimiter: int) -> None:
        """Store the model's name, which ends before the delimiter."""
        assert self._value_at is not None
        start = self._value_at - self._at
        end = delimiter - 1 if self._tail[delimiter - 1 : delimiter] == b"\r" else delimiter
        end = max(start, end)
        self._check_length(end - start)
        try:
            self.model = self._tail[start:end].decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest("the form's field 'model' is not UTF-8", param="model") from error
        self.span = (self._value_at, self._at + end)
        self._value_at = None

    def _check_length(self, size: int) -> None:
        if size > _MOST_NAME_BYTES:
            raise InvalidRequest("the form's field 'model' is too long", param="model")

    def _in_line(self) -> bool:
        """In the rest of a delimiter's line."""
        if self._tail.startswith(b"--", self._position):
            self._state = FormScan._behind_end
            return True
        end = self._tail.find(b"\n", self._position)
        if end < 0 and len(self._tail) - self._position <= _MOST_PADDING_BYTES:
            return False
        if end < 0 or self._tail[self._position : end].strip(b" \t\r"):
            raise InvalidRequest("the form cannot be read: a line begins as its boundary does")
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise InvalidRequest(f"the form has more than {_MOST_PARTS} parts")
        self._position = self._searched = end + 1
        self._state = FormScan._in_head
        return True

    def _in_head(self) -> bool:
        """In the headers of a part."""
        start = self._position
        end = _NO_HEAD.match(self._tail, start) or _HEAD_END.search(self._tail, max(start, self._searched))
        if (end.end() if end is not None else len(self._tail)) - start > _MOST_HEAD_BYTES:
            raise InvalidRequest("the form cannot be read: a part's headers do not end")
        if end is None:
            self._searched = len(self._tail) - _HEAD_END_BYTES + 1
            return False
        head = self._tail[start : end.start()].decode("latin-1")
        if self._refuses is not None:
            for _, name in _names(_fields(head)):
                plain = unquote(name.rpartition("'")[2])
                if any(self._refuses(part.strip(" []")) for part in plain.replace("[", ".").split(".")):
                    raise InvalidRequest(
                        "this key may send no form with a field that refers to stored objects or names further models",
                        param=plain[:_MOST_PARAM_CHARS],
                    )
        if _is_model(head):
            if self.model is not None:
                raise InvalidRequest("the form has the field 'model' twice", param="model")
            self._value_at = self._at + end.end()
        elif "file" in head.lower():
            self._file_at = self._at + end.end()
        # The line end may belong to a delimiter, if the part is empty.
        self._position = end.end() - 1
        self._state = FormScan._in_body
        return True

    def _behind_end(self) -> bool:
        """After the last delimiter, where nothing belongs to the form."""
        self._position = len(self._tail)
        return False


def boundary_of(content_type: str) -> bytes:
    """The boundary of a form. Raises InvalidRequest unless there is exactly one."""
    given = [_unquoted(value) for name, value in _PARAMETER.findall(content_type) if name.lower() == "boundary"]
    if len(given) != 1 or not 0 < len(given[0]) <= 70:
        raise InvalidRequest("content-type: a form needs one boundary")
    return given[0].encode("latin-1", "replace")


def _is_model(head: str) -> bool:
    """Whether a part is the field ``model``. Raises InvalidRequest if only some readers would say so."""
    fields = _fields(head)
    names = _names(fields)
    # RFC 2231 allows a value in pieces (name*0, name*1). Few servers join them, and no client writes them.
    is_in_pieces = any(name[-1:].isdigit() or name.endswith("0*") for name, _ in names)
    if not is_in_pieces and not any(_may_be_model(value) for _, value in names):
        return False
    encodings = {v.strip().lower() for n, _, v in fields if n.strip().lower() == "content-transfer-encoding"}
    if names != [("name", "model")] or not encodings <= _PLAIN_ENCODINGS:
        raise InvalidRequest("the form's field 'model' must be written plainly: name=\"model\"", param="model")
    return True


_Fields = list[tuple[str, str, str]]


def _fields(head: str) -> _Fields:
    return [line.partition(":") for line in _LINE.split(_FOLD.sub(" ", head)) if line]


def _names(fields: _Fields) -> list[tuple[str, str]]:
    """The names of a part, by the parameters that give them."""
    return [
        (name.lower(), _unquoted(value))
        for text in [value for name, _, value in fields if name.strip().lower() == "content-disposition"]
        for name, value in _PARAMETER.findall(text)
        if name.lower().rstrip("*0123456789") == "name"
    ]


def _may_be_model(name: str) -> bool:
    """Whether any reader may take the name for ``model``, however it is written. RFC 8187 puts a character set before
    the name, and PHP puts brackets after it. Some readers accept single quotes, and readers in C stop at a NUL."""
    plain = unquote(name.strip("'").rpartition("'")[2]).partition("\0")[0].strip().lower()
    return plain.partition("[")[0].strip() == "model"


def _unquoted(value: str) -> str:
    value = value.strip()
    return _ESCAPED.sub(r"\1", value[1:-1]) if len(value) > 1 and value[0] == value[-1] == '"' else value


_SOUND_PATHS = ("/audio/transcriptions", "/audio/translations")
_PATHS = (*_SOUND_PATHS, "/images/edits", "/images/variations", "/videos")


def is_form(client: Client, path: Path) -> bool:
    """Whether the request is a form that names a model."""
    return client.method == "POST" and is_any_form(client) and path.text.endswith(_PATHS)


def is_sound(path: Path) -> bool:
    """Whether the request is about an audio file, whose length decides the cost of the request."""
    return path.text.endswith(_SOUND_PATHS)


def is_any_form(client: Client) -> bool:
    """Whether the request is a form."""
    return form_of(client.headers).kind.strip().startswith("multipart/")


@dataclass(slots=True, repr=False)
class Upload:
    """A form that has arrived as far as its model: the bytes that are ``held``, and the ``rest``. ``model`` is empty if
    the form has none, and None if no model was found within the limit."""

    client: Client
    held: bytes
    rest: AsyncIterator[bytes]
    scan: FormScan
    model: str | None

    def sound_s(self) -> float | None:
        """How long the audio in the form's files lasts at the most. None if that is not known, or if the files have not
        arrived completely."""
        return longest_s([self.held[start:end] for start, end in self.scan.files])

    def length(self, model: str) -> str | None:
        """The length of the form with that name for the model. None if the client did not declare the length of its own
        form."""
        given = form_of(self.client.headers).length
        return None if given is None else str(given + len(self._front(model)) - len(self.held))

    async def body(self, model: str) -> AsyncIterator[bytes]:
        """The form with that name for the model, as it arrives."""
        yield self._front(model)
        is_read = self.model is not None or self.scan.is_strict
        async for chunk in _scanned(self.client, self.scan, self.rest) if is_read else self.rest:
            yield chunk

    def _front(self, model: str) -> bytes:
        span = self.scan.span
        if span is None or model == self.model:
            return self.held
        return self.held[: span[0]] + model.encode() + self.held[span[1] :]


async def read_form(
    client: Client,
    limit: int,
    upload_limit: int,
    refuses: Callable[[str], bool] | None = None,
    *,
    is_whole: bool = False,
) -> Upload:
    """The form up to its model, or to its end if ``is_whole``, or up to the limit. ``refuses`` says which fields it
    must not have. Raises InvalidRequest, PayloadTooLarge, RequestTimeout, ClientDisconnected."""
    scan = FormScan(boundary_of(get(client.headers, "content-type") or ""), refuses)
    rest = client.stream(upload_limit)
    chunks: list[bytes] = []
    size = 0
    async for chunk in rest:
        chunks.append(chunk)
        size += len(chunk)
        scan.feed(chunk)
        if size > limit or (scan.model is not None and not is_whole):
            return Upload(client, b"".join(chunks), rest, scan, scan.model)
    return Upload(client, b"".join(chunks), rest, scan, scan.model or "")


def checked_form(
    client: Client, upload_limit: int, refuses: Callable[[str], bool], heard: Callable[[bytes], None]
) -> AsyncIterator[bytes]:
    """Any other form, as it arrives. It must not have fields that ``refuses`` names. ``heard`` is called with each
    chunk. Raises InvalidRequest, as the form does, and the errors of the client's stream."""
    scan = FormScan(boundary_of(get(client.headers, "content-type") or ""), refuses)
    return _scanned(client, scan, client.stream(upload_limit), heard)


async def _scanned(
    client: Client, scan: FormScan, chunks: AsyncIterator[bytes], heard: Callable[[bytes], object] = len
) -> AsyncIterator[bytes]:
    """A form as it arrives. What is wrong with it is recorded, because the upstream sees only that it breaks off."""
    try:
        async for chunk in chunks:
            scan.feed(chunk)
            heard(chunk)
            yield chunk
    except InvalidRequest as error:
        client.failure = error
        raise


# 8 kbit/s, the lowest rate of MPEG-2 layer III: ISO/IEC 13818-3, table of bit rates.
_LEAST_MP3_BYTES_PER_S = 1000


def longest_s(files: Sequence[bytes]) -> float | None:
    """The most seconds that the longest of these files can last. None if one of them is not understood, or if there are
    no files.

    A second of audio has no minimum number of bytes. Hours of silence are a few kilobytes of FLAC, Opus or AAC, and
    their header may claim one second, which no decoder believes. Plain WAV and MP3 last no longer than their bytes
    allow, whatever their headers say. Any other file counts as the longest that any provider accepts
    (``proxy.protocol.request.demand``), until the answer says how long it was."""
    found = [_seconds(file) for file in files]
    known = [seconds for seconds in found if seconds is not None]
    return max(known) if known and len(known) == len(found) else None


def _seconds(file: bytes) -> float | None:
    if file.startswith((b"ID3", b"\xff")):
        return len(file) / _LEAST_MP3_BYTES_PER_S if _is_mp3(file) else None
    try:
        tag = TinyTag.get(file_obj=BytesIO(file), tags=False)
    except (TinyTagException, ArithmeticError, ValueError, LookupError):
        return None
    bytes_per_s = (tag.samplerate or 0) * (tag.channels or 0) * ((tag.bitdepth or 0) // 8)
    is_plain = (tag.mime_type or "").startswith("audio/wav") and tag.is_lossless
    return len(file) / bytes_per_s if is_plain and bytes_per_s > 0 else None


def _is_mp3(file: bytes) -> bool:
    """Whether the file begins with a frame of MPEG audio, or has one after its ID3 tag
    (https://id3.org/id3v2.3.0#ID3v2_header). A layer of 0 is AAC, which needs fewer bytes."""
    at = 0
    if file.startswith(b"ID3"):
        at = 10 + sum((byte & 0x7F) << shift for byte, shift in zip(file[6:10], (21, 14, 7, 0), strict=False))
    head = file[at : at + 2]
    return len(head) == 2 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0 and head[1] & 0x06 != 0


# Paths below an object whose content may be of any length and says nothing about objects.
_CONTENT = frozenset({"content", "results", "files"})


@dataclass(frozen=True, slots=True)
class Raw:
    """A request as far as it was read. ``head`` is None if it is neither a JSON object nor a form with a model.
    ``is_unread``: the body is compressed, and may name a model."""

    body: bytes | AsyncIterator[bytes] | Upload
    head: RequestFields | None = None
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
        return isinstance(self.body, bytes) and (exchange.arrival.method in ("GET", "HEAD") or exchange.asks_model)


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
        named = {"model": orjson.dumps(deployment.model)} if head.model and head.model != deployment.model else {}
        body = head.edited({**named, **(further_members or {})})
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
    principal, arrival = exchange.principal, exchange.arrival
    headers: Headers = for_upstream(client.headers, deployment, principal, accept_encoding)
    if arrival.tells_id:
        headers = with_id(headers, deployment, arrival.named or arrival.id)
    return Call(
        deployment=deployment,
        method=client.method,
        path=path,
        query=sent_query(client.query, client.headers, deployment, principal) if client.query else "",
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


def is_json(client: Client) -> bool:
    """Whether the content type says that the body is JSON."""
    return any("json" in value.lower() for name, value in client.headers if name == "content-type")


def has_body(client: Client) -> bool:
    """Whether the request has a body."""
    length = get(client.headers, "content-length")
    return get(client.headers, "transfer-encoding") is not None or length not in (None, "0")


def addressed(head: RequestFields, model: str, parse: Callable[[bytes], ParsedBody]) -> RequestFields:
    """The request with this model in its body, in place of any other model. A
    model that is named in the address, as on Azure, is written into the body before anything else is read of it, so
    rights, budgets and plans apply to that model."""
    if head.model == model:
        return head
    return unambiguous(head_of(head.edited({"model": orjson.dumps(model)}), parse))


def check_addressed(exchange: Exchange) -> None:
    """Raises InvalidRequest for a body that does not ask for the model that the address names: a form, or a body that
    cannot be parsed."""
    if exchange.requested.model != exchange.arrival.addressed:
        raise InvalidRequest(
            "The path names a model, and the body cannot be given it: write the same name into its 'model', and send "
            "JSON uncompressed.",
            param="model",
            code="model_mismatch",
        )
