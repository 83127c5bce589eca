"""A provider that keeps objects for each account key, as the providers do: whoever has the key reaches all of them."""

import re
import threading
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from tests.security.provider import Answer, Seen, event

_KINDS = {
    "responses": "resp", "chat/completions": "chatcmpl", "files": "file", "uploads": "upload", "batches": "batch",
    "vector_stores": "vs", "conversations": "conv", "containers": "cntr", "messages/batches": "msgbatch",
    "videos": "video",
}  # fmt: skip
_PATHS = sorted(_KINDS, key=len, reverse=True)
USAGE = {"input_tokens": 100, "output_tokens": 50, "total_tokens": 150}


@dataclass
class Account:
    """A script for ``RecordingProvider``. ``finish`` ends the work on all background responses."""

    name: str
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    _count: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, seen: Seen) -> Answer | None:
        path = unquote(seen.path).removeprefix("/v1/")
        kind = next((one for one in _PATHS if path == one or path.startswith(one + "/")), None)
        if kind is None:
            return None
        rest = [part for part in path[len(kind) :].split("/") if part]
        with self._lock:
            if not rest:
                return self._make(kind, seen) if seen.method == "POST" else self._list(kind, seen)
            return self._touch(rest, seen)

    def finish(self) -> None:
        """Every response is done."""
        for made in self.objects.values():
            if made.get("background"):
                made.update(status="completed", usage=USAGE)

    def _make(self, kind: str, seen: Seen) -> Answer:
        self._count += 1
        made: dict[str, Any] = {"id": f"{_KINDS[kind]}_{self.name}{self._count}", "object": kind, "kind": kind}
        body = seen.json if isinstance(seen.json, dict) else {}
        if kind == "responses":
            item = {"type": "message", "id": f"msg_{made['id']}", "content": []}
            call = {"type": "code_interpreter_call", "id": f"ci_{made['id']}", "container_id": f"cntr_of_{made['id']}"}
            made |= {"status": "completed", "usage": USAGE, "output": [item, call], "metadata": body.get("metadata")}
            made |= {"store": body.get("store", True)}
            if body.get("background") is True:
                made |= {"status": "queued", "usage": None, "background": True, "output": []}
            self.objects[f"cntr_of_{made['id']}"] = {"id": f"cntr_of_{made['id']}", "kind": "containers"}
        if kind == "chat/completions":
            choice = {"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}
            made |= {"choices": [choice], "usage": {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}}
        self.objects[made["id"]] = made
        if body.get("stream") is True and kind == "responses":
            return Answer(
                headers=[("content-type", "text/event-stream")],
                body=iter(
                    [
                        event(
                            {"type": "response.created", "response": {**made, "status": "in_progress", "usage": None}}
                        ),
                        event({"type": f"response.{made['status']}", "response": made}),
                    ]
                ),
            )
        return Answer(body=made)

    def _list(self, kind: str, seen: Seen) -> Answer:
        rows = [made for made in self.objects.values() if made["kind"] == kind]
        asked = dict(re.findall(r"([a-z_]+)=([^&]*)", seen.query))
        after = asked.get("after", asked.get("after_id"))
        ids = [row["id"] for row in rows]
        start = ids.index(after) + 1 if after in ids else 0
        size = int(asked.get("limit", 2))
        page = rows[start : start + size]
        ends = {"first_id": page[0]["id"] if page else None, "last_id": page[-1]["id"] if page else None}
        return Answer(body={"object": "list", "data": page, **ends, "has_more": start + size < len(rows)})

    def _touch(self, rest: list[str], seen: Seen) -> Answer:
        if rest[0] in ("compact", "input_tokens"):
            return Answer(body={"object": "response.compaction", "usage": USAGE})
        made = self.objects.get(rest[0])
        if made is None:
            error = {"message": f"No such object: '{rest[0]}'.", "type": "invalid_request_error", "param": None}
            return Answer(404, {"error": {**error, "code": "not_found"}})
        if seen.method == "DELETE" and len(rest) == 1:
            del self.objects[rest[0]]
            return Answer(body={"id": rest[0], "deleted": True})
        if len(rest) > 1 and rest[1] != "cancel":
            return Answer(body={"object": "list", "data": [{"id": f"below_{rest[0]}"}], "secret": made["id"]})
        if rest[1:] == ["cancel"] and made["status"] == "queued":
            made["status"] = "cancelled"
        if "stream=true" in seen.query:
            last = event({"type": "response.completed", "response": made})
            return Answer(body=iter([last]), headers=[("content-type", "text/event-stream")])
        return Answer(body=made)
