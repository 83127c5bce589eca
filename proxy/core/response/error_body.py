"""An error in the body of a successful answer, with the operator's secrets taken out of it.

Sans-IO. Some servers send status 200 before they know how the request ends, and then an error as the body. A body
passes as it comes until something in it is called ``error``. What follows is kept until the body ends, or until it is
longer than any error of a provider, and is searched.
"""

from proxy.core.response.error_events import EDGE_BYTES, error_in
from proxy.core.secrets.redaction import MOST_BYTES, Redaction

_BEFORE_BYTES = 4 << 10
"""This many bytes before the word are searched as well, if they have not passed: a message may stand before it."""


class ErrorBody:
    """One body."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._waiting = b""
        """The bytes that have not passed, because an error begins or may begin in them."""
        self._is_searched = False

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk. Returns the bytes that may be passed on."""
        if self._is_searched:
            return chunk
        text = self._waiting + chunk
        error_at = error_in(text)
        passing = max(0, len(text) - EDGE_BYTES if error_at is None else error_at - _BEFORE_BYTES)
        passed, self._waiting = text[:passing], text[passing:]
        if len(self._waiting) <= MOST_BYTES:
            return passed
        self._is_searched = True
        return passed + self.close()

    def close(self) -> bytes:
        """The body has ended. Returns the bytes that were kept."""
        kept, self._waiting = self._waiting, b""
        if error_in(kept) is None:
            return kept
        return self._redaction.body(kept[:MOST_BYTES]) + kept[MOST_BYTES:]
