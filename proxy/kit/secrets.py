"""Finds keys in requests and takes them out of texts. This module stores no key.

One list has the headers and query parameters that may hold a key, and how to read them. The headers are those of the
clients that people use: ``authorization`` (OpenAI), ``x-api-key`` (Anthropic), ``api-key`` and
``ocp-apim-subscription-key`` (Azure), ``x-goog-api-key`` (Gemini) and ``x-litellm-api-key`` (LiteLLM's clients). The
proxy reads its own keys from each of them. It sends none of them on if the key is its own.

Known secrets are taken out of an upstream's answers. Everything that looks like a key is taken out of texts that a
client chose, and out of texts that are logged or kept. Every pattern takes linear time in the text: each repetition is
of one class of characters, is bounded or greedy, and is not followed by anything that could match the same characters.
"""

import re
from base64 import b64encode
from collections.abc import Container, Iterable, Sequence
from operator import itemgetter

Headers = Sequence[tuple[str, str]]

KEY_PREFIX = "sk-strat-"
"""The beginning of every key that the proxy makes."""
KEY_HEADERS = (
    "authorization", "x-api-key", "api-key", "x-litellm-api-key", "x-goog-api-key", "ocp-apim-subscription-key",
)  # fmt: skip
OWN_KEY_HEADER = "x-stratiform-key"
"""The header for the proxy's key in a team whose clients bring the provider's key."""
CREDENTIAL_HEADERS = frozenset({*KEY_HEADERS, OWN_KEY_HEADER, "proxy-authorization", "x-auth-token", "x-api-token"})
# A provider whose API the client follows reads the key from the same header, without a scheme.
PLAIN_KEY_HEADERS = ("x-api-key", "api-key", "x-goog-api-key", "ocp-apim-subscription-key")
ACCOUNT_HEADERS = frozenset(
    {
        "openai-organization", "openai-project", "anthropic-organization-id", "anthropic-workspace-id",
        "anthropic-workspace", "x-goog-user-project", "x-goog-project-id", "x-amzn-bedrock-project-id",
        "x-ms-client-principal-id",
    }
)  # fmt: skip
"""Headers that select the account that pays, or a part of it. If the operator's key is used, the operator decides
this."""
KEY_PARAMETERS = frozenset(
    {
        "key", "api_key", "api-key", "apikey", "access_token", "access-token", "accesstoken", "auth_token",
        "authorization", "subscription-key", "subscription_key", *KEY_HEADERS, OWN_KEY_HEADER,
    }
)  # fmt: skip
"""Query parameters in which providers take keys."""
# Shorter values can occur in other places by chance.
_LEAST_CHARS = 8


def canonical(name: str) -> str:
    """The name of a header as a server may read it: CGI and WSGI read ``_`` as ``-``. Names are in lower case."""
    return name.replace("_", "-")


def bare(value: str) -> str:
    """The key without its scheme."""
    scheme, _, rest = value.strip().partition(" ")
    return rest.strip() if scheme.lower() == "bearer" else value.strip()


def sent_keys(headers: Headers) -> list[str]:
    """The keys in the headers that hold keys of this proxy, in the order of those headers."""
    found = [(name.lower(), value) for name, value in headers if value.strip()]
    places = [(KEY_HEADERS.index(name), value) for name, value in found if name in KEY_HEADERS]
    return [bare(value) for _, value in sorted(places, key=itemgetter(0))]


def secrets_in(headers: Headers, places: Container[str] = CREDENTIAL_HEADERS) -> tuple[str, ...]:
    """All texts in headers for credentials, each once. They must not be found anywhere else."""
    found = (bare(value) for name, value in headers if canonical(name) in places)
    return tuple(dict.fromkeys(value for value in found if len(value) >= _LEAST_CHARS))


def client_key(headers: Headers) -> str | None:
    """A key that every transport can pass on: a bearer token, or a header of Anthropic's or Azure's clients."""
    sent = {name.lower(): value.strip() for name, value in headers}
    scheme, _, rest = sent.get("authorization", "").partition(" ")
    token = rest.strip() if scheme.lower() == "bearer" else ""
    return token or sent.get("x-api-key") or sent.get("api-key") or None


def holds(text: str, secrets: Iterable[str]) -> bool:
    """Whether the text has one of the secrets."""
    return any(secret in text for secret in secrets)


REDACTED = "[redacted]"
# If a key is quoted in part, a beginning of this length tells more than its owner, and an end of this length tells more
# than its checksum.
_TOLD_START_CHARS = 12
_TOLD_END_CHARS = 8
_LEAST_MASKED_CHARS = 3
_MOST_AROUND_CHARS = 64
_MOST_ESCAPINGS = 3

_RUN = re.compile(r"[\w-]{8,}", re.ASCII)
_MASK = re.compile(r"\*{2,}|\.{2,}|\u2026+|\u2022{2,}|#{3,}|[xX]{4,}")
_AROUND = re.compile(r"[\w-]*", re.ASCII)
# Characters as JSON, addresses and HTML may write them.
_ESCAPED = re.compile(
    r"(?<!\\)\\++u([0-9a-fA-F]{4})|%([0-9a-fA-F]{2})|&#([0-9]{2,3});|&#[xX]([0-9a-fA-F]{2});|(?<!\\)\\++(/)"
)
_WORD_CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./+=~:@*%&#;")

# Keys as providers and clouds write them, headers, addresses with a password.
_SHAPES = (
    (re.compile(r"sk-strat-[\w*-]+"), REDACTED),
    (re.compile(r"\b(?:sk|rk|pk|xai|gsk|pplx|csk|nvapi|glpat)-[\w*-]{6,}"), REDACTED),
    (re.compile(r"\b(?:sk|rk|pk|gsk|hf|r8|ghp|gho|ghs|tgp)_[\w*]{12,}"), REDACTED),
    (re.compile(r"\bgithub_pat_\w+|\bAIza[\w-]{20,}|\b(?:AKIA|ASIA)[A-Z0-9]{12,}|\bya29\.[\w.-]{10,}"), REDACTED),
    (re.compile(r"\beyJ[\w-]{8,200}\.[\w.-]{8,}"), REDACTED),
    (re.compile(r"(?i)\b(bearer)[ \t]{1,8}[\w.~+/=*-]{6,}|\b(basic)[ \t]{1,8}[\w+/=]{16,}"), rf"\1\2 {REDACTED}"),
    (re.compile(r"(?i)(api[_-]?key|access[_-]?token)([\"']?\s?[:=]\s?[\"']?)[^\s\"'&,}]+"), rf"\1\2{REDACTED}"),
    (re.compile(r"(\w{1,32}://)[^\s/@\"']{1,256}@"), r"\1"),
)
# Matches a piece of every ASCII text in which one of the shapes can be found: one search instead of eight. The shapes
# that ignore the case of letters also match some letters beyond ASCII.
_MAY_HAVE_SHAPE = re.compile(
    r"(?:[srpc]k|ai|plx|pi|at)-|(?:[srp]k|hf|r8|gh[pos]|tgp|pat)_|AIza|A[KS]IA|ya29\.|eyJ|://"
    r"|[bB][eE][aA][rR][eE][rR]|[bB][aA][sS][iI][cC]|[aA][pP][iI][_-]?[kK][eE][yY]|[tT][oO][kK][eE][nN]"
)
_LEAST_RUN_CHARS = 24
_LONG_RUN = re.compile(rf"[A-Za-z0-9+=]{{{_LEAST_RUN_CHARS},}}")
_HEX = frozenset("0123456789abcdefABCDEF")
_LEAST_HEX_CHARS = 32


class Redaction:
    """Removes these secrets from every place: as they are, escaped, and in part, as providers quote keys
    (``sk-...abcd``). Texts without secrets pass unchanged. Secrets with fewer than eight characters are not removed,
    because they would be found everywhere."""

    def __init__(self, secrets: Iterable[str]) -> None:
        # For a header's value, also the part after its scheme counts.
        texts = (text.strip() for secret in secrets for text in (secret, secret.strip().partition(" ")[2]))
        self._secrets = tuple(dict.fromkeys(text for text in texts if len(text) >= _LEAST_CHARS))
        forms = [
            (
                secret,
                secret.replace("\\", "\\\\").replace('"', '\\"'),
                b64encode(secret.encode("utf-8", "surrogateescape")).decode().rstrip("="),
            )
            for secret in self._secrets
        ]
        written = sorted({form for each in forms for form in each}, key=len, reverse=True)
        self._literal = re.compile("|".join(map(re.escape, written)), re.IGNORECASE) if written else None

    def text(self, text: str) -> str:
        """The text without the secrets."""
        if self._literal is None:
            return text
        plain = text
        for _ in range(_MOST_ESCAPINGS):
            before, plain = plain, _ESCAPED.sub(_unescaped, plain)
            if plain == before:
                break
        unmasked = self._unmasked(self._literal.sub(REDACTED, plain))
        # A long beginning, or a long end, of a secret goes as well.
        found = _RUN.sub(lambda run: REDACTED if self._is_told(run[0]) else run[0], unmasked)
        return text if found == plain else found

    def body(self, body: bytes) -> bytes:
        """Bytes without the secrets, whatever the bytes are."""
        text = body.decode("utf-8", "surrogateescape")
        found = self.text(text)
        return body if found == text else found.encode("utf-8", "surrogateescape")

    def _unmasked(self, text: str) -> str:
        """The text without the beginning and the end of a secret around stars or dots."""
        parts, done = [], 0
        for mask in _MASK.finditer(text):
            if mask.start() < done:
                continue
            before = text[max(done, mask.start() - _MOST_AROUND_CHARS) : mask.start()]
            before = before[len(before.rstrip(_WORD_CHARS)) :]
            around = _AROUND.match(text, mask.end(), mask.end() + _MOST_AROUND_CHARS)
            after = around[0] if around else ""
            if max(len(before), len(after)) >= _LEAST_MASKED_CHARS and any(
                secret.startswith(before) and secret.endswith(after) for secret in self._secrets
            ):
                parts += [text[done : mask.start() - len(before)], REDACTED]
                done = mask.end() + len(after)
        return "".join([*parts, text[done:]]) if parts else text

    def _is_told(self, run: str) -> bool:
        return any(
            (len(run) >= _TOLD_START_CHARS and secret.startswith(run))
            or (len(run) >= _TOLD_END_CHARS and secret.endswith(run))
            for secret in self._secrets
        )


def without_keys(text: str, keys: Iterable[str] = (), *, keeps_runs: bool = False) -> str:
    """The text without these keys, and without texts that have the shape of a key: a known prefix, a header's value, a
    long run of random letters and digits. ``keeps_runs``: such runs stay, because they tell users and ids apart."""
    for key in keys:
        if len(key) >= _LEAST_CHARS and key in text:
            text = text.replace(key, REDACTED)
    if not text.isascii() or _MAY_HAVE_SHAPE.search(text) is not None:
        for pattern, replacement in _SHAPES:
            text = pattern.sub(replacement, text)
    return text if keeps_runs or len(text) < _LEAST_RUN_CHARS else _LONG_RUN.sub(_unless_words, text)


def _unless_words(run: re.Match[str]) -> str:
    """The run, or a replacement if it looks like a key.

    Words have no digits between them, and names of models have few letters. A key of that length has all kinds.
    """
    text = run[0]
    if not any(char.isdigit() for char in text):
        return text
    is_mixed = any(char.islower() for char in text) and any(char.isupper() for char in text)
    is_hex = len(text) >= _LEAST_HEX_CHARS and _HEX.issuperset(text)
    return REDACTED if is_mixed or is_hex else text


def _unescaped(match: re.Match[str]) -> str:
    """The character, if it can be part of a key. Otherwise the escape as it was written."""
    if match[5]:
        return "/"
    number = int(match[3]) if match[3] else int(match[1] or match[2] or match[4], 16)
    return chr(number) if chr(number) in _PLAIN else match[0]


MOST_BYTES = 64 << 10
"""The most bytes of an error that are searched. This takes some hundredths of a second."""
_MOST_STRINGS = 10_000
_MOST_STRING_CHARS = 4096
_NOTE = " [cut by the proxy]"
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
# Half a character would make the string one that some readers refuse.
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_BEGINNING = re.compile(
    rf'"(?:[^"\\]|{_PAIR}|\\u[0-9a-fA-F]{{4}}|\\[^u]){{0,{_MOST_STRING_CHARS}}}+', re.DOTALL | re.ASCII
)


def excerpt(error: bytes) -> bytes | None:
    """The error, whole if it is short, and otherwise with its long strings cut. None if it is still too long.

    The search for a key in all forms in which it can be quoted takes about a second for a megabyte. Each long string
    keeps its beginning, so that JSON stays JSON."""
    if len(error) <= MOST_BYTES:
        return error
    text = error.decode("utf-8", "surrogateescape")
    parts, done = list[str](), 0
    for number, found in enumerate(_STRING.finditer(text)):
        if number >= _MOST_STRINGS:
            return None
        if found.end() - found.start() > _MOST_STRING_CHARS:
            beginning = _BEGINNING.match(text, found.start(), found.end() - 1)
            assert beginning is not None
            parts += (text[done : found.start()], beginning[0], _NOTE, '"')
            done = found.end()
    short = "".join((*parts, text[done:])).encode("utf-8", "surrogateescape")
    return short if len(short) <= MOST_BYTES else None
