"""Estimates how many tokens of an answer have come if its provider does not say it: the client left before the usage
came.

Most bytes of a stream are framing. The share of text is measured in samples: in the first kilobytes, and then at
intervals, so that whole chunks pass without being read. The bytes of a token are measured in the sampled text. Sans-IO.
"""

import re

import orjson

from proxy.core.request.token_estimate import estimate

_ALL_BYTES = 8 << 10
"""Up to this number of bytes, everything is sampled."""
_STEP_BYTES = 2 << 10
_MOST_SAMPLE_BYTES = 32 << 10
_MOST_TEXT_BYTES = 16 << 10

# Text, thoughts and arguments of tools, in the shapes of chats, completions, Anthropic's messages and Gemini.
_TEXT = re.compile(
    rb'"(?:content|text|reasoning|reasoning_content|thinking|refusal|arguments|partial_json|input|args|code|data|transcript)"'
    rb'\s*:\s*"([^"\\]*(?:\\.[^"\\]*)*)'
)
# The Responses API sends each piece as a delta, and at the end the whole text again.
_IS_RESPONSES = b'"response.'
_DELTA = re.compile(rb'"delta"\s*:\s*"([^"\\]*(?:\\.[^"\\]*)*)')

_WIDE_TOKENS = 0.8
"""The tokens of a character beyond ASCII."""
_ODD_BYTES_PER_TOKEN = 3


class Received:
    """Counts the events that pass. ``add`` takes whole events, and takes only the time of the samples."""

    def __init__(self) -> None:
        self._bytes = self._next = self._sampled = self._text = self._kept = 0
        self._texts: list[bytes] = []
        self.has_text = False
        """Whether any text was seen."""

    def add(self, events: bytes) -> None:
        """Count whole events."""
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
