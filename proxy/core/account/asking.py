"""The paths on which a request asks a model: one table for rights, prices, retries and the account's objects. Pure.

Sources: https://platform.openai.com/docs/api-reference, https://docs.anthropic.com/en/api/overview,
https://ai.google.dev/api/generate-content.
"""

import re

from proxy.core.account.paths import Path
from proxy.core.value import dataclass


@dataclass(frozen=True, slots=True)
class AskingPath:
    """A path on which the body of a POST says the model, and no other thing does.

    ``keeps``: what is made there may be kept as an object of the account, as far as the path tells. ``by_tokens``: it
    changes nothing, so that it may be sent again, and is billed by tokens; this also holds with anything in front of
    the path. ``behind_name``: it may stand behind the name of an engine or a deployment. ``is_free``: it costs nothing,
    and the body may leave the model out.
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
"""The words of the paths on which nothing is made that could be kept."""
_RUNS = re.compile(r"/threads/[^/]+/runs")
VERBS = frozenset({"generatecontent", "streamgeneratecontent", "counttokens", "embedcontent"})
"""What stands behind a model's name and a colon, in small letters."""
_GENERATING = (
    *(one.text for one in _PATHS if one.by_tokens), ":generatecontent", ":streamgeneratecontent", ":embedcontent",
)  # fmt: skip


def is_body_path(text: str) -> bool:
    """Whether the body of a POST on this path (``Path.text``) says the model, and nothing else does."""
    return text in _BY_TEXT or _RUNS.fullmatch(text) is not None


def asking_path(text: str) -> AskingPath | None:
    """The row of this path (``Path.text``); None for every other."""
    return _BY_TEXT.get(text)


def takes_prompt(path: Path) -> bool:
    """Whether a request's ``prompt`` and ``suffix`` are all that a model reads, however its path is written."""
    return path.text.endswith("/completions") and not path.text.endswith("/chat/completions")


def asks_model(method: str, path: Path) -> bool:
    """Whether a request asks a model, changes nothing and is billed by tokens, however its path is written."""
    # A thread's messages are not asked but stored.
    return method == "POST" and path.text.endswith(_GENERATING) and "/threads/" not in path.text
