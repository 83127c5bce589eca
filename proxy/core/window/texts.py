"""The words around the parts of a request. They are read from ``prompts/window/`` at the rim."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WindowTexts:
    """Each stands on a line above its part, in the newest user message. ``summary`` stands above a summary in a user
    message of its own, and ``summary_ok`` is the assistant's answer to it."""

    instruction: str
    selection: str
    prefix: str
    suffix: str
    summary: str
    summary_ok: str
