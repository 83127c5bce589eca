"""The tag in the sent messages, as against tags that the client itself sent (a proxy behind another one sees those)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from . import words
from .view import View, plain_text


@dataclass(slots=True)
class Tag:
    """What was found: how often, where last, and the lines inside."""

    path: str = "messages"
    count: int = 0
    lines: list[str] = field(default_factory=list)

    def is_ours(self, part: object) -> bool:
        """Whether this part may be the tag."""
        text = plain_text(part)
        return text is not None and self.count > 0 and words.tag_lines(text) is not None

    def is_whole(self, message: View) -> bool:
        """Whether this message is the tag and nothing else."""
        alone = message.role == "user" and message.rest == "{}" and len(message.texts or ()) == 1
        return alone and self.count > 0 and words.tag_lines(message.joined) is not None

    def is_used_up(self, reached: set[int]) -> bool:
        """Whether all lines came from system messages. The newline of the last one may stand inside the tag."""
        wanted = len(self.lines)
        ends = {wanted, wanted - 1} if self.lines and not self.lines[-1] else {wanted}
        return bool(ends & reached)


def _all_texts(message: View) -> list[str]:
    if message.texts is not None:
        return list(message.texts)
    content = message.raw.get("content")
    parts = content if isinstance(content, list) else []
    return [text for text in map(plain_text, parts) if text is not None]


def extra_tags(original: Sequence[View], sent: Sequence[View]) -> Tag:
    """The tags in ``sent`` that are not the client's own."""
    own = Counter(text for message in original for text in _all_texts(message) if text.startswith(words.TAG_OPEN))
    tag = Tag()
    for message in sent:
        for text in _all_texts(message):
            lines = words.tag_lines(text)
            if lines is None:
                continue
            own[text] -= 1
            if own[text] < 0:
                tag.count += 1
                tag.path = message.path
                tag.lines += lines
    return tag
