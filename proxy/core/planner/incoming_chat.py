"""A request at the planner's door."""

from dataclasses import dataclass

from proxy.core.modes import Mode
from proxy.core.planner.texts_in_flight import TextsInFlight
from proxy.core.request.element import Element
from proxy.core.request.parsed_body import ParsedBody
from proxy.core.request.route import Route
from proxy.core.request.transcript import Transcript
from proxy.core.wire.json_body import ChatRequest


@dataclass(frozen=True, slots=True)
class IncomingChat:
    """A chat request that has been read and is to be planned. ``original`` is the client's request with the edits that
    every mode allows. ``account`` names what the provider keeps apart. ``texts`` are the operator's texts in it, None
    where there are none. Signed thinking keeps the first ``still`` messages where they are for good; the first
    ``laid_out`` of them went out as the elements ``front``, with ``tools`` where those were not as they come now, and
    ``original`` has both."""

    parsed: ParsedBody
    transcript: Transcript
    original: bytes
    route: Route
    account: bytes
    mode: Mode
    now: float
    texts: TextsInFlight | None = None
    still: int = 0
    laid_out: int = 0
    front: tuple[Element, ...] = ()
    tools: bytes | None = None

    @property
    def request(self) -> ChatRequest:
        """The request, parsed."""
        return self.parsed.chat()
