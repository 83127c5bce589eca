"""The words of compactions. They are read from ``prompts/`` at the rim."""

from dataclasses import dataclass

from proxy.core.structured.messages.turn import Turn
from proxy.core.structured.messages.written import pair


@dataclass(frozen=True, slots=True)
class CompactionTexts:
    """``prompt`` asks a model for the boundary of the newest topic and for a summary; in it ``{summary_tokens}`` stands
    for how long the summary may be. ``header`` stands above a summary in the conversation, and ``ok`` is the
    assistant's answer to it."""

    prompt: str
    header: str
    ok: str

    def pair(self, summary: str) -> tuple[Turn, ...]:
        """What stands in the place of the messages that a compaction has left out: nothing, where there is no
        summary."""
        if not summary:
            return ()
        return tuple(map(Turn.of, pair(f"{self.header}\n{summary}", self.ok)))
