"""What is added to a user message."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Inset:
    """Texts of the operator around the client's own text of one user message; "" adds nothing. A blank line stands
    between each of them and the client's text."""

    before: str = ""
    after: str = ""

    def __bool__(self) -> bool:
        return bool(self.before or self.after)

    def followed_by(self, text: str) -> "Inset":
        """The same with a further text at the very end."""
        return Inset(self.before, "\n\n".join(part for part in (self.after, text) if part))
