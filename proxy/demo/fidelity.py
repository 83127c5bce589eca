"""Checks that the requests that reached the provider hold everything that a client has said, in any form."""

from collections.abc import Iterator, Mapping, Sequence

import orjson

from proxy.core.value import dataclass, field
from proxy.demo.sample import Message

_PANEL_CALL = "panel_"
# Shorter texts may be part of others by chance.
_DISTINCT_CHARS = 200


@dataclass(frozen=True, slots=True)
class Wanted:
    """The content that must reach the provider: the ``conversation`` in its order, and each of the ``contents``, by
    name, once. The ``hidden`` texts must not reach it. ``is_frozen``: old messages of the conversation may be text in a
    panel."""

    conversation: Sequence[Message]
    contents: Mapping[str, str]
    hidden: Mapping[str, str] = field(default_factory=dict)
    is_frozen: bool = False

    def losses(self, sent: bytes) -> list[str]:
        """The parts that are missing in a request, are there twice, or are out of order; empty if all is well."""
        messages = orjson.loads(sent)["messages"]
        said, wanted = list(map(_said, messages)), list(map(_said, self.conversation))
        texts = [_text(message) for message, one in zip(messages, said, strict=True) if one not in wanted]
        found = [*self._contents("\n".join(texts)), *_parted(messages)]
        if self.is_frozen:
            return [*found, *_in_order(list(map(_text, self.conversation)), "\n".join(map(_text, messages)))]
        lost = list(_in_order(wanted, said))
        is_prompt_last = self.conversation[-1]["role"] != "user" or bool(list(_in_order(wanted, said[:-1])))
        return [*found, *lost] if lost or is_prompt_last else [*found, "something stands behind the prompt"]

    def live_messages(self, sent: bytes) -> int:
        """How many messages of the conversation are in a request as messages, and not in a frozen part."""
        said = set(map(_said, orjson.loads(sent)["messages"]))
        return sum(_said(message) in said for message in self.conversation)

    def _contents(self, whole: str) -> Iterator[str]:
        for name, text in self.contents.items():
            times = whole.count(text if text.strip() else f"{name}\n")
            if not times:
                yield f"{name} is missing"
            elif times > 1 and len(text) >= _DISTINCT_CHARS and times > self._times_in(text):
                yield f"{name} stands there {times} times"
        for name, text in self.hidden.items():
            if len(text) >= _DISTINCT_CHARS and text in whole and not self._times_in(text):
                yield f"{name} is not selected, and stands there in full"

    def _times_in(self, text: str) -> int:
        """How often a text occurs in the contents: files may be equal, or one may contain another."""
        return sum(other.count(text) for other in self.contents.values())


def _in_order(wanted: Sequence[str], said: Sequence[str]) -> Iterator[str]:
    """The first message that did not arrive after the messages before it, neither as a message nor within their
    text."""
    at = 0
    for number, one in enumerate(wanted, 1):
        try:
            at = said.index(one, at) + (len(one) if isinstance(said, str) else 1)
        except ValueError:
            yield f"message {number} of the conversation is missing, or out of order"
            return


def _parted(messages: Sequence[Message]) -> Iterator[str]:
    """Panel calls whose result does not follow at once."""
    for message, behind in zip(messages, [*messages[1:], {}], strict=True):
        for call in message.get("tool_calls") or []:
            if call["id"].startswith(_PANEL_CALL) and behind.get("tool_call_id") != call["id"]:
                yield f"{call['id']} and its result are parted"


def _said(message: Message) -> str:
    """A message without markers, in one form."""
    known = {key: message[key] for key in ("role", "tool_calls", "tool_call_id") if message.get(key)}
    return orjson.dumps({**known, "content": _text(message)}, option=orjson.OPT_SORT_KEYS).decode()


def _text(message: Message) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
