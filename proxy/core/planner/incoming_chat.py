"""A request at the planner's door."""

from dataclasses import dataclass

from proxy.core.modes import Mode
from proxy.core.planner.texts_in_flight import TextsInFlight
from proxy.core.request.element import Element
from proxy.core.request.parsed_body import ParsedBody
from proxy.core.request.route import Route
from proxy.core.request.transcript import Transcript
from proxy.core.sessions.sent_fronts import BoundFront
from proxy.core.wire.json_body import ChatRequest


@dataclass(frozen=True, slots=True)
class IncomingChat:
    """A chat request that has been read and is to be planned. ``original`` is the client's request with the edits that
    every mode allows. ``account`` names what the provider keeps apart. ``texts`` are the operator's texts in it, None
    where there are none. ``bound`` is what must stay as it went out; ``front`` are the elements of its form, None where
    that is the client's own, and ``tools`` are the tools in the form in which they stand there. ``original`` has them,
    too."""

    parsed: ParsedBody
    transcript: Transcript
    original: bytes
    route: Route
    account: bytes
    mode: Mode
    now: float
    texts: TextsInFlight | None = None
    bound: BoundFront = BoundFront()
    front: tuple[Element, ...] | None = None
    tools: bytes | None = None

    @property
    def request(self) -> ChatRequest:
        """The request, parsed."""
        return self.parsed.chat()
