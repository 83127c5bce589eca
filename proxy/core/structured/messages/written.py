"""Messages that the proxy writes itself."""

from proxy.core.wire.surrogates import text_json


def message(role: str, text: str) -> bytes:
    """A message of this role that says the text."""
    return b'{"role":"' + role.encode() + b'","content":' + text_json(text) + b"}"


def pair(text: str, ok: str) -> tuple[bytes, bytes]:
    """A user's message and the assistant's answer."""
    return message("user", text), message("assistant", ok)
