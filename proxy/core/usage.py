"""Token usage, normalised from every provider's dialect."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one exchange. ``prompt`` is inclusive: read + write_5m + write_1h + plain = prompt, as OpenAI counts.

    ``estimated`` is set where the provider reported nothing and the figures are our own count.
    """

    prompt: int
    output: int
    read: int = 0
    write_5m: int = 0
    write_1h: int = 0
    estimated: bool = False

    @property
    def write(self) -> int:
        """Tokens written to the cache at either life."""
        return self.write_5m + self.write_1h

    @property
    def plain(self) -> int:
        """Prompt tokens neither read from nor written to the cache."""
        return self.prompt - self.read - self.write
