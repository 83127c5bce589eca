"""The fields of the section that describe live panels and the conversation's history, read and validated."""

import re
from collections.abc import Mapping, Sequence

from msgspec import UnsetType

from proxy.core.structured.form.form_json import DetachJson, MessageMetaJson, PanelJson
from proxy.core.structured.form.paths import refusal
from proxy.core.structured.history.metas import DetachTerms, MessageMeta, Status
from proxy.core.structured.panels.panel import FROZEN_PREFIX, OWN_KIND, Panel
from proxy.errors import InvalidRequest

DetachWish = Mapping[str, int] | bool | None
"""What a client says of freezing old parts of its conversation: the minimums that it sets, yes, no, or nothing."""

RESERVED_IDS = frozenset({"footer"})
RESERVED_PREFIX = FROZEN_PREFIX
"""Ids of what the proxy itself shows beside the client's panels."""

_ID = re.compile(r"[A-Za-z0-9_-]{1,56}")
_KIND = re.compile(r"[a-z][a-z0-9_]{0,63}")
_LINE_BREAKS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_MOST_TERM = 10_000_000


def read_panels(found: Sequence[PanelJson], param: str) -> tuple[Panel, ...]:
    """The panels in the client's order. Raises InvalidRequest for an id that is malformed, reserved or there twice."""
    seen: set[str] = set()
    panels = []
    for number, each in enumerate(found):
        at = f"{param}[{number}]"
        if not _ID.fullmatch(each.id):
            raise refusal(f"{at}.id", "must have 1 to 56 characters of A-Z, a-z, 0-9, '_' and '-'", "invalid_value")
        if each.id in RESERVED_IDS or each.id.startswith(RESERVED_PREFIX):
            raise refusal(f"{at}.id", "is an id that the proxy uses itself: choose another one", "reserved_id")
        if each.id in seen:
            message = f"the id in '{at}.id' stands twice: each panel has an id of its own"
            raise InvalidRequest(message, param=f"{at}.id", code="duplicate_id")
        seen.add(each.id)
        panels.append(Panel(each.id, _kind(each.kind, at), _header(each.header, at), each.content))
    return tuple(panels)


def read_metas(found: Sequence[MessageMetaJson], param: str) -> dict[int, MessageMeta]:
    """What is said of the messages, by their index. Whether there is such a message is not known here."""
    metas: dict[int, MessageMeta] = {}
    for number, each in enumerate(found):
        at = f"{param}[{number}]"
        if each.index < 0 or each.index in metas:
            why = "must not be negative" if each.index < 0 else "stands twice: describe each message once"
            raise InvalidRequest(f"'{at}.index' {why}", param=f"{at}.index", code="invalid_index")
        status, tl_dr = Status(each.status), each.tl_dr if isinstance(each.tl_dr, str) else ""
        if (status is Status.SUMMARIZED) != bool(tl_dr.strip()):
            why = "a summarized message needs it" if status is Status.SUMMARIZED else "only a summarized message has it"
            raise InvalidRequest(f"'{at}.tl_dr': {why}", param=f"{at}.tl_dr", code="invalid_value")
        metas[each.index] = MessageMeta(status, tl_dr)
    return metas


def read_detach(found: DetachJson | bool | None | UnsetType, param: str) -> DetachWish:
    """What the client wants. Raises InvalidRequest for a minimum below one."""
    if not isinstance(found, DetachJson):
        return found if isinstance(found, bool) else None
    terms: dict[str, int] = {}
    for name in found.__struct_fields__:
        value = getattr(found, name)
        if not isinstance(value, int):
            continue
        if not 1 <= value <= _MOST_TERM:
            raise refusal(f"{param}.{name}", f"must be between 1 and {_MOST_TERM}", "invalid_value")
        terms[name] = value
    return terms


def detach_terms(wish: DetachWish, default: DetachTerms | None) -> DetachTerms | None:
    """By which minimums the conversation is frozen; None: it is not. ``default`` is the operator's, and None where the
    operator freezes only what a client asks for."""
    if wish is False or (wish is None and default is None):
        return None
    own = default or DetachTerms()
    if not isinstance(wish, Mapping):
        return own
    return DetachTerms(
        chunk_messages=wish.get("chunk_messages", own.chunk_messages),
        chunk_tokens=wish.get("chunk_tokens", own.chunk_tokens),
        keep_messages=wish.get("keep_messages", own.keep_messages),
        keep_tokens=wish.get("keep_tokens", own.keep_tokens),
    )


def _kind(kind: str | None | UnsetType, at: str) -> str:
    if not isinstance(kind, str) or not kind:
        return OWN_KIND
    if not _KIND.fullmatch(kind):
        raise refusal(
            f"{at}.kind", "must begin with a letter and have only a-z, 0-9 and '_', at most 64", "invalid_value"
        )
    return kind


def _header(header: str | None | UnsetType, at: str) -> str:
    if not isinstance(header, str):
        return ""
    if _LINE_BREAKS.search(header):
        raise refusal(f"{at}.header", "holds a control character or a line break", "invalid_value")
    return header
