"""Adds signed thinking to sessions that have none: the same answer has the same block in every request."""

import copy
import json
from enum import StrEnum
from hashlib import sha256
from typing import Any

Body = dict[str, Any]


class SignedForm(StrEnum):
    """The places where clients keep a model's signed thinking."""

    THINKING_BLOCKS = "thinking_blocks"
    REDACTED = "redacted"
    REASONING_DETAILS = "reasoning_details"
    ENCRYPTED = "encrypted"
    PARTS = "parts"


def signed(body: Body, form: SignedForm = SignedForm.THINKING_BLOCKS, one_of: int = 1) -> Body:
    """The request with signed thinking in one of ``one_of`` answers."""
    found = copy.deepcopy(body)
    for message in found["messages"]:
        seal = sha256(json.dumps(message).encode()).hexdigest()
        if message["role"] == "assistant" and int(seal, 16) % one_of == 0:
            _sign(message, form, seal)
    return found


def _sign(message: Body, form: SignedForm, seal: str) -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": seal}
    match form:
        case SignedForm.THINKING_BLOCKS:
            message["thinking_blocks"] = [thought]
        case SignedForm.REDACTED:
            message["thinking_blocks"] = [{"type": "redacted_thinking", "data": seal}]
        case SignedForm.REASONING_DETAILS:
            message["reasoning_details"] = [{"type": "reasoning.text", "text": "Hm.", "signature": seal}]
        case SignedForm.ENCRYPTED:
            message["reasoning_details"] = [{"type": "reasoning.encrypted", "data": seal}]
        case SignedForm.PARTS:
            # No provider honours a marker on a message whose content is a list.
            message.pop("cache_control", None)
            content = message.get("content") or []
            text = [{"type": "text", "text": content}] if isinstance(content, str) else content
            message["content"] = [thought, *text]
