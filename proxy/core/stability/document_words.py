"""Which of a request's retrieved documents have the words of its last question, and which those of the one before."""

import re
from collections.abc import Sequence

from proxy.core.request.view import RecognisedRequest
from proxy.core.stability.edit_signals import shown, text_of

# A question is read this far, and so much of all documents together, of each the beginning: what is longer takes
# longer than the rest of planning.
_READ_CHARS = 4_000
_MAX_WORDS = 60
_DOCUMENTS_CHARS = 40_000
# What is shorter is rarely what a text is about.
_WORD = re.compile(r"[^\W\d_]\w{3,}")


def read_words(recognised: RecognisedRequest) -> list[tuple[float, float]]:
    """For each document: its share of the last question's words, less what the documents have on average, and the same
    of the question before."""
    retrieved = recognised.retrieved()
    if not retrieved:
        return []
    most = _DOCUMENTS_CHARS // len(retrieved)
    documents = [item.text[:most].lower() for item in retrieved]
    last = recognised.last_user
    before = next((i for i in range(last - 1, -1, -1) if recognised.messages[i].role == "user"), None)
    asked = _beyond_average(shown(recognised.messages[last]), documents)
    earlier = _beyond_average(text_of(recognised.messages[before]) if before is not None else "", documents)
    return list(zip(asked, earlier, strict=True))


def _beyond_average(question: str, documents: Sequence[str]) -> list[float]:
    words = list(dict.fromkeys(_WORD.findall(question[:_READ_CHARS].lower())))[:_MAX_WORDS]
    if not words:
        return [0.0] * len(documents)
    shares = [sum(word in document for word in words) / len(words) for document in documents]
    average = sum(shares) / len(shares)
    return [share - average for share in shares]
