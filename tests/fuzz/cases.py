"""One case: a request, how it is sent, and when its client loses patience."""

from dataclasses import dataclass
from random import Random

from tests.fuzz.values import MODELS, chat, deep, mutated, near_miss, value, written

RawHeaders = list[tuple[bytes, bytes]]

KEYS = (*(b"Bearer sk-blue",) * 10, *(b"Bearer sk-red",) * 6, b"bearer  sk-red", b"Bearer sk-nobody", b"", b"\xff\xfe")
NAMES = (
    b"x-stratiform-mode", b"x-stratiform-time", b"x-session-id", b"x-session-affinity", b"thread-id",
    b"content-encoding", b"accept-encoding", b"content-length", b"transfer-encoding", b"connection", b"te",
    b"cookie", b"x-api-key", b"api-key", b"x-embedded-fault", b"anthropic-beta", b"openai-organization", b"host",
    b"x-forwarded-for", b"expect", b"upgrade", b"x-stratiform-reason", b"traceparent", b"\xff", b"x y", b"",
    b"retry-after",
)  # fmt: skip
VALUES = (
    b"tier", b"mark", b"observe", b"passthrough", b"turbo", b"gzip", b"identity", b"chunked", b"close, x-session-id",
    b"0", b"-1", b"99999999999999999999", b"nan", b"1e308", b"", b"\xff\x00", b"a" * 3000, "é漢".encode(), b"a\tb",
    b"s1", b"rate-limit;seconds=0.001", b"error;status=503", b"error;n=1", b"cut;after=1", b"empty-stream",
    b"no-bytes", b"slow-first-byte;seconds=0.001", b"refuse-rewrite", b"rate-limit;n=1;seconds=0", b"nonsense;;=",
)  # fmt: skip
PATHS = (
    "/v1/embeddings", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/files", "/v1/models",
    "/v1/models/claude", "/v1/models/%ff%00", "/v1/../admin", "/v1/a/%2e%2e/b", "/v1/a/..%5cb", "/v1//x",
    "/v1/\xe9", "/admin/keys", "/admin/teams/blue", "/chat/completions", "/models", "/", "/v1", "/healthz",
    "/readyz", "/v2/x", "/v1/a;b/..;/c",
)  # fmt: skip
METHODS = ("POST", "POST", "GET", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS", "X-ODD")


@dataclass(frozen=True, slots=True)
class Case:
    """``parts`` is the body as it arrives; ``is_cut``: the client leaves before it is complete; ``leaves_after``: it
    leaves after so many pieces of the answer. ``seed`` is what the strange upstream answers by."""

    number: int
    kind: str
    method: str
    path: str
    query: bytes
    headers: RawHeaders
    parts: tuple[bytes, ...]
    is_cut: bool = False
    leaves_after: int | None = None
    seed: int = 0


def case(seed: int, number: int) -> Case:
    """The case of that number."""
    random = Random(f"{seed}/{number}")
    kind = random.choice(
        ("chat", "near-miss", "mutated", "json", "noise", "deep", "stream", "stream", "headers", "path")
    )
    method, path = "POST", "/v1/chat/completions"
    if kind in ("chat", "headers"):
        body = written(random, chat(random))
    elif kind == "near-miss":
        body = written(random, near_miss(random))
    elif kind == "mutated":
        body = mutated(random, written(random, chat(random)))
    elif kind == "json":
        body = written(random, value(random))
    elif kind == "noise":
        body = random.randbytes(random.randrange(200))
    elif kind == "deep":
        body = deep(random)
    elif kind == "stream":
        body = written(random, {**chat(random), "model": "strange", "stream": random.random() < 0.7})
    else:
        method, path = random.choice(METHODS), random.choice(PATHS)
        body = written(random, {"model": random.choice(MODELS), "input": value(random)})
    return Case(
        number=number,
        kind=kind,
        method=method,
        path=path,
        query=random.choice((b"", b"", b"a=1&b=%00", b"\xff")),
        headers=_headers(random, body, many=kind == "headers"),
        parts=_parts(random, body),
        is_cut=random.random() < 0.03,
        leaves_after=random.randrange(4) if random.random() < 0.08 else None,
        seed=random.getrandbits(32),
    )


def _headers(random: Random, body: bytes, *, many: bool) -> RawHeaders:
    headers: RawHeaders = [(b"host", b"x")]
    if random.random() < 0.97:
        headers.append((b"authorization", random.choice(KEYS)))
    kinds = (b"application/json", b"application/json; charset=utf-8", b"text/plain", b"multipart/form-data; boundary=b")
    headers.append((b"content-type", kinds[0] if random.random() < 0.9 else random.choice(kinds)))
    headers.append((b"content-length", b"%d" % len(body)))
    count = random.randrange(1, 8) if many else int(random.random() < 0.15)
    headers += [(random.choice(NAMES), random.choice(VALUES)) for _ in range(count)]
    return headers


def _parts(random: Random, body: bytes) -> tuple[bytes, ...]:
    if random.random() < 0.7:
        return (body,)
    cuts = sorted(random.randrange(len(body) + 1) for _ in range(random.randrange(1, 5)))
    return tuple(body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True))
