"""The search as a whole: read the session, search, write the requests as they would be sent."""

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.core.caches.prompt import Life
from proxy.core.layout.layout import Layout, PrefixSettings
from proxy.core.layout.render import render_messages, render_tools
from proxy.core.providers import CacheProfile, Dialect, Family
from proxy.core.recognition.pieces import Recogniser
from proxy.core.request.element import ElementKind
from proxy.core.request.tokens import Encode
from proxy.core.wire.json_body import splice
from proxy.replay.search.beam import Sending, search
from proxy.replay.search.marked import Marked
from proxy.replay.search.scene import SceneReader, Shot
from proxy.replay.search.stored import Stored
from proxy.replay.search.tree import Tree
from proxy.replay.trace import Step

DEFAULT_WIDTH = 16


@dataclass(frozen=True, slots=True)
class Found:
    """One request as the search sends it, and how it got there."""

    body: bytes
    sending: Sending


def find_layouts(
    steps: Sequence[Step],
    profile: CacheProfile,
    encode: Encode,
    recognisers: Sequence[Recogniser],
    width: int = DEFAULT_WIDTH,
) -> list[Found] | None:
    """The best way found to send these requests; None where they cannot be searched."""
    if profile.family is Family.NONE:
        return None
    reader = SceneReader(profile, encode, recognisers)
    shots = reader.read(steps)
    if shots is None:
        return None
    tree = Tree(reader.prompts, shots)
    if profile.family is Family.MARKER:
        sendings = search(Marked(profile, shots), tree, shots, width)
    else:
        sendings = search(Stored(profile, shots, tree), tree, shots, width)
    return [Found(_body(shot, s, profile.dialect), s) for shot, s in zip(shots, sendings, strict=True)]


def _body(shot: Shot, sending: Sending, dialect: Dialect) -> bytes:
    path, request = sending.path, shot.request
    layout = Layout(PrefixSettings(b"", b""), path.elements)
    marks: dict[int, Life] = {}
    for position in sending.marks:
        element = path.element[position]
        is_tools = layout.elements[element].kind is ElementKind.TOOLS
        place = len(layout.elements[element].parts) - 1 if is_tools else path.offset[position]
        marks[layout.starts[element] + place] = "5m"
    changes: dict[str, bytes | None] = {
        "messages": render_messages(layout, shot.recognised.messages, marks, dialect),
    }
    tools = shot.materials[0].tools
    if tools:
        raw = bytes(request.members["tools"])
        changes["tools"] = render_tools(raw, marks.get(len(tools[0].parts) - 1), dialect)
    return splice(request.body, request.members, changes)
