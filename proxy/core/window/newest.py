"""Writes the JSON of messages that get parts of a request, and of messages that are shortened."""

from collections.abc import Sequence

from msgspec import Raw

from proxy.core.request.tokens import MESSAGE_OVERHEAD_TOKENS
from proxy.core.value import dataclass
from proxy.core.window.form import VirtualFile
from proxy.core.window.shortening import Count, head
from proxy.core.wire.json_body import elements, join_members, members_of, text_value, value
from proxy.core.wire.surrogates import dumps, text_json


def own_text(raw: bytes) -> str:
    """The text of a message. If its content is a list, it is the text of its text parts, one line for each. Raises
    Unreadable."""
    content = members_of(raw).get("content")
    if content is None:
        return ""
    if bytes(content)[:1] == b"[":
        return "\n".join(text for part in elements(content) if (text := _part_text(part)) is not None)
    found = text_value(content)
    return found if isinstance(found, str) else ""


def with_text(raw: bytes, text: str, *, keeps_own: bool = True) -> bytes:
    """A message with a text in front of the client's own text, and a blank line between the two. Unless it
    ``keeps_own``, the text replaces the client's own. The rest of the content follows the text. Raises Unreadable."""
    members = members_of(raw)
    content = members.get("content")
    if content is not None and bytes(content)[:1] == b"[":
        others = [bytes(part) for part in elements(content) if keeps_own or _part_text(part) is None]
        return join_members(members, {"content": b"[" + b",".join([_text_part(text), *others]) + b"]"})
    own = own_text(raw) if keeps_own else ""
    return join_members(members, {"content": text_json(f"{text}\n\n{own}" if own.strip() else text)})


def message_json(role: str, text: str) -> bytes:
    """The JSON of a message."""
    return b'{"role":' + text_json(role) + b',"content":' + text_json(text) + b"}"


def shortened_messages(messages: Sequence[tuple[bytes, int]], allowed_tokens: int, count: Count) -> list[bytes]:
    """As much from the beginning of the messages as fits into ``allowed_tokens``. Each message comes with its tokens.
    Raises Unreadable."""
    found: list[bytes] = []
    left = allowed_tokens
    for raw, tokens in messages:
        if tokens > left:
            short = head(own_text(raw), left - MESSAGE_OVERHEAD_TOKENS, count)
            return [*found, join_members(members_of(raw), {"content": text_json(short)})] if short else found
        found.append(raw)
        left -= tokens
    return found


def _part_text(raw: Raw) -> str | None:
    members = members_of(raw)
    if "text" not in members or value(members.get("type", Raw(b"null"))) != "text":
        return None
    text = text_value(members["text"])
    return text if isinstance(text, str) else None


def _text_part(text: str) -> bytes:
    return b'{"type":"text","text":' + text_json(text) + b"}"


@dataclass(frozen=True, slots=True)
class Payload:
    """The files of a request in the order of their priority. Each has its tokens, and the tokens of its id, which
    counts if the file is left out. ``frame_tokens`` are those of the object without files and without the message's
    text."""

    files: tuple[VirtualFile, ...]
    file_tokens: tuple[int, ...]
    id_tokens: tuple[int, ...]
    frame_tokens: int

    @classmethod
    def of(cls, files: Sequence[VirtualFile], message: str, count: Count) -> "Payload":
        """The payload with all files. If none is active, the first one is."""
        active = next((n for n, file in enumerate(files) if file.is_active), 0)
        ordered = (files[active], *files[:active], *files[active + 1 :])
        empty = cls(ordered, (0,) * len(ordered), (0,) * len(ordered), 0)
        ids = tuple(count(_json(file.id)) + 1 for file in ordered)
        # A file takes the tokens of its id in either case.
        sizes = tuple(max(count(_json(_entry(f))) + 1, own) for f, own in zip(ordered, ids, strict=True))
        frame = count(empty.text(message, 0)) - count(message) + 2
        return cls(ordered, sizes, ids, max(0, frame))

    @property
    def tokens(self) -> int:
        return self.frame_tokens + sum(self.file_tokens)

    @property
    def least_tokens(self) -> int:
        return self.frame_tokens + self.file_tokens[0] + sum(self.id_tokens[1:])

    def fitting(self, allowed_tokens: int) -> int:
        """The number of files that fit into ``allowed_tokens``, and at least one. The time is linear."""
        tokens, shown = self.tokens, len(self.files)
        while shown > 1 and tokens > allowed_tokens:
            shown -= 1
            tokens -= self.file_tokens[shown] - self.id_tokens[shown]
        return shown

    def text(self, message: str, shown: int) -> str:
        """The object with the first ``shown`` files, as compact JSON. Text that is not ASCII is written as it is."""
        found = {
            "kind": "virtual_files",
            "schema_version": 1,
            "message": message,
            "active_file": self.files[0].id,
            "virtual_files": [_entry(file) for file in self.files[:shown]],
            "omitted_virtual_file_ids": [file.id for file in self.files[shown:]] if shown else [],
        }
        return _json(found)


def _entry(file: VirtualFile) -> dict[str, str]:
    return {"id": file.id, "content": file.content}


def _json(found: object) -> str:
    return dumps(found).decode()
