"""Reads a request's path in one way that all checks share.

Servers differ in how they read a path: some decode it twice, cut a segment off at a semicolon, take a backslash or a
full-width slash for a slash, drop empty segments, or stop at a zero byte. A path that two servers could read
differently is refused for everybody, so that every accepted path has one reading. The path is sent on as the client
wrote it.

The paths on which a request asks a model are in one table, for rights, prices, retries and the account's objects.
Sources: https://platform.openai.com/docs/api-reference, https://docs.anthropic.com/en/api/overview,
https://ai.google.dev/api/generate-content.
"""

import re
import unicodedata
from itertools import takewhile

from proxy.core.value import dataclass
from proxy.errors import NotFound

INVALID_PATH = "invalid_path"
MOST_PATH_CHARS = 2048
# A model's name may have a slash, which clients encode: the official SDK asks for /models/org%2Fname.
NAME_MODELS = frozenset({"models", "model", "engines", "deployments"})
# Segments that gateways and providers put in front of the paths that they share.
_FRONTS = frozenset({"v1", "v1beta", "v1beta1", "v2", "api", "openai", "beta"})
_RAW = re.compile(r"(?:/(?:[!$&-.0-\[\]^_`a-z{|}~]|%[0-9A-Fa-f]{2})*+)++")
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
# Delimiters of paths, queries and fragments, and characters that some servers read as one of them.
_DELIMITERS = frozenset("\\%;?#")


@dataclass(frozen=True, slots=True)
class Path:
    """The part of a path after ``/v1``, as it was read. ``segments`` are decoded and otherwise as the client wrote
    them. ``words`` are the same in small letters. Both leave out segments in front of the paths that all providers
    share, such as a further ``v1``; ``skipped`` counts the segments that are left out. An encoded slash of a model's
    name stays within its segment."""

    segments: tuple[str, ...]
    words: tuple[str, ...]
    skipped: int = 0

    @property
    def text(self) -> str:
        """The path in small letters as the most lenient server reads it, without a slash at its end."""
        return "/" + "/".join(self.words) if self.words else ""


def read_path(raw: str) -> Path:
    """The reading of the part of a path after ``/v1``, which is percent-encoded as it came. Raises NotFound if there is
    more than one reading."""
    return _CHAT if raw == _CHAT_PATH else _read(raw)


def _read(raw: str) -> Path:
    if len(raw) > MOST_PATH_CHARS:
        raise _invalid(f"it is longer than {MOST_PATH_CHARS} characters")
    if _RAW.fullmatch(raw) is None:
        raise _invalid("it has characters that a path must percent-encode, or a percent sign that encodes nothing")
    segments = [_decoded(segment) for segment in raw[1:].split("/")]
    if segments[-1] == "":
        segments.pop()
    skipped = len(list(takewhile(lambda segment: segment.lower() in _FRONTS, segments)))
    for number, segment in enumerate(segments):
        names_model = number > 0 and any(word.lower() in NAME_MODELS for word in segments[:number])
        for part in segment.split("/") if names_model else (segment,):
            _check(part)
    kept = tuple(segments[skipped:])
    return Path(kept, tuple(segment.lower() for segment in kept), skipped)


def percent_decoded(text: bytes) -> str:
    """The text with every escape replaced by its byte. Raises UnicodeDecodeError."""
    return _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), text).decode()


def _decoded(segment: str) -> str:
    try:
        return percent_decoded(segment.encode("ascii"))
    except UnicodeDecodeError as error:
        raise _invalid("it is not UTF-8") from error


def _check(part: str) -> None:
    if part == "":
        raise _invalid("it has an empty segment")
    if part.endswith(".") or part.strip() != part:
        raise _invalid("a segment ends in a dot, or begins or ends with a space")
    if "/" in part or not _DELIMITERS.isdisjoint(part):
        raise _invalid("a segment holds an encoded slash, or one of the characters \\ % ; ? #")
    if not part.isprintable():
        raise _invalid("it has a control character")
    # Full-width and similar forms: some servers turn them into the ASCII characters that they resemble.
    letters = [letter for letter in part if not letter.isascii()]
    forms = (form for one in letters for form in (one.upper(), one.lower(), unicodedata.normalize("NFKC", one)))
    if any(character.isascii() for form in forms for character in form):
        raise _invalid("it has characters that some servers replace by others")


def _invalid(why: str) -> NotFound:
    return NotFound(f"the path cannot be read in one way only: {why}", code=INVALID_PATH)


# Most requests have this path. Other paths are read each time, because no text of clients is kept here.
_CHAT_PATH = "/chat/completions"
_CHAT = _read(_CHAT_PATH)


@dataclass(frozen=True, slots=True)
class AskingPath:
    """A path on which only the body of a POST names the model.

    ``keeps``: according to the path, what is made there may be kept as an object of the account. ``by_tokens``: a
    request changes nothing, so that it may be sent again, and is billed by tokens. This also holds with anything in
    front of the path. ``behind_name``: the path may follow the name of an engine or a deployment. ``is_free``: it costs
    nothing, and the body may leave out the model.
    """

    text: str
    keeps: bool = False
    by_tokens: bool = False
    behind_name: bool = False
    is_free: bool = False


_PATHS = (
    AskingPath("/chat/completions", keeps=True, by_tokens=True, behind_name=True),
    AskingPath("/completions", by_tokens=True, behind_name=True),
    AskingPath("/fim/completions", by_tokens=True),
    AskingPath("/complete", keeps=True),
    AskingPath("/responses", keeps=True, by_tokens=True, behind_name=True),
    AskingPath("/responses/compact", by_tokens=True),
    AskingPath("/responses/input_tokens"),
    AskingPath("/messages", by_tokens=True),
    AskingPath("/messages/count_tokens"),
    AskingPath("/embeddings", by_tokens=True, behind_name=True),
    AskingPath("/moderations", is_free=True),
    AskingPath("/rerank", behind_name=True),
    AskingPath("/score"),
    AskingPath("/classify"),
    AskingPath("/pooling"),
    AskingPath("/tokenize"),
    AskingPath("/detokenize"),
    AskingPath("/ocr"),
    AskingPath("/edits"),
    AskingPath("/images/generations", behind_name=True),
    AskingPath("/images/edits", behind_name=True),
    AskingPath("/images/variations", behind_name=True),
    AskingPath("/audio/speech", behind_name=True),
    AskingPath("/audio/transcriptions", behind_name=True),
    AskingPath("/audio/translations", behind_name=True),
    AskingPath("/videos", keeps=True),
    AskingPath("/realtime/sessions", keeps=True),
    AskingPath("/realtime/client_secrets", keeps=True),
    AskingPath("/realtime/transcription_sessions", keeps=True),
    AskingPath("/assistants", keeps=True),
    AskingPath("/threads/runs", keeps=True),
)
_BY_TEXT = {one.text: one for one in _PATHS}
UNKEPT = frozenset(tuple(one.text[1:].split("/")) for one in _PATHS if not one.keeps)
"""The words of the paths on which no object is made that could be kept."""
_RUNS = re.compile(r"/threads/[^/]+/runs")
VERBS = frozenset({"generatecontent", "streamgeneratecontent", "counttokens", "embedcontent"})
"""The words that may follow a model's name and a colon, in small letters."""
_GENERATING = (
    *(one.text for one in _PATHS if one.by_tokens), ":generatecontent", ":streamgeneratecontent", ":embedcontent",
)  # fmt: skip


def is_body_path(text: str) -> bool:
    """Whether only the body of a POST on this path (``Path.text``) names the model."""
    return text in _BY_TEXT or _RUNS.fullmatch(text) is not None


def asking_path(text: str) -> AskingPath | None:
    """The row of this path (``Path.text``). None if the path is not in the table."""
    return _BY_TEXT.get(text)


def takes_prompt(path: Path) -> bool:
    """Whether a request's ``prompt`` and ``suffix`` are all that a model reads, however its path is written."""
    return path.text.endswith("/completions") and not path.text.endswith("/chat/completions")


def asks_model(method: str, path: Path) -> bool:
    """Whether a request asks a model, changes nothing and is billed by tokens, however its path is written."""
    # The messages of a thread are stored, and no model is asked.
    return method == "POST" and path.text.endswith(_GENERATING) and "/threads/" not in path.text
