"""The payload of a request that edits several documents: one JSON object in the newest user message.

The files stand in it in the order of their priority: the active one first, then the others as the client lists them.
Where they do not fit, the last ones go, and the payload names them. The active file is never left out. Earlier turns
have no files: they stand at the end of the prompt alone.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from proxy.core.window.parts import VirtualFile
from proxy.core.window.shortening import Count

KIND = "virtual_files"
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Payload:
    """The files of a request in the order of their priority, with the tokens that each takes, and that its id takes
    where it is left out. ``frame_tokens`` are those of the object without files and without the message's text."""

    files: tuple[VirtualFile, ...]
    file_tokens: tuple[int, ...]
    id_tokens: tuple[int, ...]
    frame_tokens: int

    @classmethod
    def of(cls, files: Sequence[VirtualFile], message: str, count: Count) -> "Payload":
        """The payload with all files. Where none is active, the first one is."""
        active = next((n for n, file in enumerate(files) if file.is_active), 0)
        ordered = (files[active], *files[:active], *files[active + 1 :])
        empty = cls(ordered, (0,) * len(ordered), (0,) * len(ordered), 0)
        ids = tuple(count(_text(file.id)) + 1 for file in ordered)
        # A file takes its id in either case.
        sizes = tuple(max(count(_text(_entry(f))) + 1, own) for f, own in zip(ordered, ids, strict=True))
        frame = count(empty.text(message, 0)) - count(message) + 2
        return cls(ordered, sizes, ids, max(0, frame))

    @property
    def tokens(self) -> int:
        """Those of the payload with all files."""
        return self.frame_tokens + sum(self.file_tokens)

    @property
    def least_tokens(self) -> int:
        """Those of the payload with the active file alone."""
        return self.frame_tokens + self.file_tokens[0] + sum(self.id_tokens[1:])

    def fitting(self, allowed_tokens: int) -> int:
        """How many files fit into so many tokens, one at least. The time is linear."""
        tokens, shown = self.tokens, len(self.files)
        while shown > 1 and tokens > allowed_tokens:
            shown -= 1
            tokens -= self.file_tokens[shown] - self.id_tokens[shown]
        return shown

    def text(self, message: str, shown: int) -> str:
        """The object with the first so many files, as compact JSON; text that is not ASCII stands as it is."""
        found = {
            "kind": KIND,
            "schema_version": SCHEMA_VERSION,
            "message": message,
            "active_file": self.files[0].id,
            "virtual_files": [_entry(file) for file in self.files[:shown]],
            "omitted_virtual_file_ids": [file.id for file in self.files[shown:]] if shown else [],
        }
        return _text(found)


def _entry(file: VirtualFile) -> dict[str, str]:
    return {"id": file.id, "content": file.content}


def _text(value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:  # half of a surrogate pair, which a client's message may hold
        return json.dumps(value, separators=(",", ":"))
