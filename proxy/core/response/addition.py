"""Puts a member of the proxy's own into a JSON body, behind the others. No other byte changes. Sans-IO."""

_MOST_KEPT = 1 << 16


class BodyAddition:
    """A JSON object as it passes. Its last closing brace is kept back until ``end``, with the white space behind it: so
    that the object may be of any length, and comes in any pieces."""

    def __init__(self) -> None:
        self._kept = b""
        self._before = b""

    def feed(self, chunk: bytes) -> bytes:
        """Take a piece of the body; returns what may pass now."""
        text = self._kept + chunk
        place = text.rfind(b"}")
        if place < 0 or text[place + 1 :].strip() or len(text) - place > _MOST_KEPT:
            place = len(text)
        passed, self._kept = text[:place], text[place:]
        self._before = passed.rstrip()[-1:] or self._before
        return passed

    def end(self, chunk: bytes, member: bytes) -> bytes:
        """Take the last piece of the body; returns the rest with the ``member``, which is a name and a value. Nothing
        is added where the body does not end as an object does, or where the member is empty."""
        passed = self.feed(chunk)
        if not self._kept or not member:
            return passed + self._kept
        return passed + (b"" if self._before == b"{" else b",") + member + self._kept
