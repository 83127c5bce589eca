"""A check that what reached the provider holds all that the client has said, whatever form it was sent in."""

from collections.abc import Iterator

import orjson

from proxy.demo.order import in_order
from proxy.demo.structured.forms import Sending

Said = tuple[str, str]

# Shorter texts may stand within others by chance.
_DISTINCT_CHARS = 200


def losses(sending: Sending, sent: bytes) -> list[str]:
    """What is missing in a request, what stands there twice, and turns out of order; empty where all is well."""
    said = [(message["role"], "".join(_texts(message["content"]))) for message in orjson.loads(sent)["messages"]]
    wanted = [(one["role"], one["content"]) for one in sending.turn.done] + [("user", sending.turn.prompt)]
    return [*_files(sending, [text for role, text in said if (role, text) not in wanted]), *_turns(wanted, said)]


def _texts(content: str | list[dict[str, str]]) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    else:
        yield from (part["text"] for part in content)


def _files(sending: Sending, texts: list[str]) -> Iterator[str]:
    whole = "\n".join(texts)
    for path, text in sending.full.items():
        times = whole.count(f"{path}\n") if not text.strip() else whole.count(text)
        if not times:
            yield f"{path} is missing"
        elif times > 1 and len(text) >= _DISTINCT_CHARS and times > _times_in(sending, text):
            yield f"{path} stands there {times} times"
    for path, text in sending.turn.files.items():
        if path not in sending.full and len(text) >= _DISTINCT_CHARS and text in whole and not _times_in(sending, text):
            yield f"{path} is not selected, and stands there in full"


def _times_in(sending: Sending, text: str) -> int:
    """How often a text stands in the files that are shown: files may be equal, or hold one another."""
    return sum(other.count(text) for other in sending.full.values())


def _turns(wanted: list[Said], said: list[Said]) -> Iterator[str]:
    lost = list(in_order(wanted, said))
    yield from lost
    if not lost and not list(in_order(wanted, said[:-1])):
        yield "something stands behind the prompt"
