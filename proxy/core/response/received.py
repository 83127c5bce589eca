"""How many tokens of an answer have come, where its provider does not say: the client left before the usage did.

Most of a stream's bytes are frame. The share that is text is found in samples, in the first kilobytes and at steps from
there on, so that whole chunks pass without being read; what a token has of bytes is found in the sampled text. Sans-IO.
"""

import re

import orjson

from proxy.core.request.token_estimate import estimate

_ALL_BYTES = 8 << 10
"""Up to here everything is sampled."""
_STEP_BYTES = 2 << 10
_MOST_SAMPLE_BYTES = 32 << 10
_MOST_TEXT_BYTES = 16 << 10

# Text, thoughts and arguments of tools, in the shapes of chats, completions, Anthropic's messages and Gemini.
_TEXT = re.compile(
    rb'"(?:content|text|reasoning|reasoning_content|thinking|refusal|arguments|partial_json|input|args|code|data|transcript)"'
    rb'\s*:\s*"([^"\\]*(?:\\.[^"\\]*)*)'
)
# The Responses API sends each piece as a delta, and at the end all of it again.
_IS_RESPONSES = b'"response.'
_DELTA = re.compile(rb'"delta"\s*:\s*"([^"\\]*(?:\\.[^"\\]*)*)')

_WIDE_TOKENS = 0.8
"""Tokens of a character beyond ASCII."""
_ODD_BYTES_PER_TOKEN = 3


class Received:
    """Counts what passes. ``add`` takes whole events; it costs what the samples cost."""

    def __init__(self) -> None:
        self._bytes = self._next = self._sampled = self._text = self._kept = 0
        self._texts: list[bytes] = []
        self.has_text = False
        """Whether any text was seen."""

    def add(self, events: bytes) -> None:
        """Take whole events into account."""
        self._bytes += len(events)
        if self._bytes >= self._next:
            self._sample(events[:_MOST_SAMPLE_BYTES])

    def tokens(self) -> int:
        """About how many tokens of text came."""
        if not self._text or not self._sampled:
            return 0
        text = self._bytes * self._text / self._sampled
        return max(1, round(text * _tokens_of(self._texts) / max(1, self._kept)))

    def _sample(self, events: bytes) -> None:
        pattern = _DELTA if _IS_RESPONSES in events else _TEXT
        self._sampled += len(events)
        for found in pattern.finditer(events):
            text = found[1]
            self._text += len(text)
            self.has_text = self._text > 0
            if self._kept < _MOST_TEXT_BYTES:
                self._texts.append(text[:_MOST_TEXT_BYTES])
                self._kept += min(len(text), _MOST_TEXT_BYTES)
        self._next = 0 if self._bytes < _ALL_BYTES else self._bytes + _STEP_BYTES


def _tokens_of(texts: list[bytes]) -> float:
    joined = b"".join(texts)
    try:
        text = orjson.loads(b'"' + joined + b'"')
    except orjson.JSONDecodeError:
        text = joined.decode("utf-8", "replace")
    if (known := estimate(text)) is not None:
        return known
    wide = sum(not character.isascii() for character in text)
    return (len(text) - wide) / _ODD_BYTES_PER_TOKEN + wide * _WIDE_TOKENS
