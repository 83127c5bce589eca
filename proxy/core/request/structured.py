"""The section ``stratiform`` of a request, in which a client says what its context consists of. Pure."""

from collections.abc import Mapping

from msgspec import Raw

from proxy.errors import InvalidRequest

_NAME = "stratiform"
_MOST_BYTES = 64


def check_structured(members: Mapping[str, Raw | bytes] | None) -> None:
    """Raises InvalidRequest where the section says anything: it is not assembled yet, and what a client says there
    would be lost without a word."""
    raw = (members or {}).get(_NAME)
    if raw is None:
        return
    text = b"" if len(raw) > _MOST_BYTES else b"".join(bytes(raw).split())
    if text not in (b"null", b"{}"):
        raise InvalidRequest(
            "this proxy does not assemble structured context yet: send the context as messages and leave out "
            f"'{_NAME}'",
            param=_NAME,
            code="structured_form_unavailable",
        )
