"""The words around the parts of a request. They are read from ``prompts/window/`` at the rim."""

from collections.abc import Mapping
from dataclasses import dataclass

from proxy.core.window.shortening import PartName


@dataclass(frozen=True, slots=True)
class WindowTexts:
    """``above`` has the line above each part. A summary and its line are a user message of their own, and
    ``summary_ok`` is the assistant's answer to it; all other parts stand in the newest user message."""

    above: Mapping[PartName, str]
    summary_ok: str
