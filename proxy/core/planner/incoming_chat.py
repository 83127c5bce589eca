"""A request to be planned: the request as it was read, the operator's texts in it, and the client's own layout."""

from proxy.core.caches import Cache
from proxy.core.caches.prompt import Bill, Life, Prompt
from proxy.core.layout.breakpoints import honoured
from proxy.core.layout.layout import Layout
from proxy.core.modes import Mode
from proxy.core.prompts.composition import Inset
from proxy.core.prompts.turn_texts import AppliedTexts
from proxy.core.providers import ASSUMED, CacheProfile, Dialect, Family
from proxy.core.request.body_changes import BodyChanges
from proxy.core.request.element import Element
from proxy.core.request.message import MARK_KEYS
from proxy.core.request.parsed_body import ParsedBody
from proxy.core.request.route import Route
from proxy.core.request.transcript import Transcript
from proxy.core.sessions.session import SessionKeys
from proxy.core.value import dataclass, field
from proxy.core.wire.json_body import Members


@dataclass(frozen=True, slots=True)
class TextsInFlight:
    """The operator's texts in a request. ``inset`` stands around the newest user message and adds ``tokens``.
    ``applied`` are the texts around earlier user messages."""

    applied: AppliedTexts
    inset: Inset = field(repr=False)
    tokens: int


def priced(profile: CacheProfile) -> CacheProfile:
    """The cache rules by which texts are priced. If nothing is known about the upstream's cache, these are assumed
    rules."""
    return ASSUMED if profile.family is Family.NONE else profile


@dataclass(frozen=True, slots=True)
class IncomingChat:
    """A chat request that has been read and is to be planned. ``original`` is the client's request with the edits that
    every mode allows. ``account`` names the cache scope that the provider keeps separate. ``texts`` are the operator's
    texts in it, None if there are none. Signed thinking fixes the first ``still`` messages in their places for good.
    The first ``laid_out`` of them were sent before as the elements ``front``, and the tools as ``tools`` if they were
    sent in another form than they come now. ``original`` has both, and ``bound`` are the changes that lead to it.
    ``place`` names the session of the request, if it was looked up before."""

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
    bound: BodyChanges | None = None
    place: SessionKeys | None = None


@dataclass(frozen=True, slots=True)
class OwnRequest:
    """The client's own request. ``natural`` is its order, with the tools as this client first sent them. ``arrived`` is
    the same order with the tools as they came in this request. ``marks`` are the client's markers that the provider
    honours. ``mark_count`` is the number of all markers that the client wrote. ``has_foreign_marks`` says whether the
    provider refuses some of them. ``bill`` is what ``prompt`` would cost now if the client's own requests had always
    been sent."""

    natural: Layout
    arrived: Layout
    marks: dict[int, Life]
    mark_count: int
    has_foreign_marks: bool
    prompt: Prompt
    bill: Bill


def own_request(incoming: IncomingChat, natural: Layout, arrived: Layout, cache: Cache) -> OwnRequest:
    """Find the client's markers, and price the request on ``cache``, the shadow cache of the client's own requests."""
    profile = incoming.route.profile
    count, has_foreign = written_marks(incoming.parsed.members, incoming.transcript, profile.dialect)
    is_honoured = count > 0 and not has_foreign and profile.family is Family.MARKER
    marks = honoured(natural, profile) if is_honoured else {}
    prompt = arrived.prompt(marks)
    return OwnRequest(natural, arrived, marks, count, has_foreign, prompt, cache.bill(prompt, incoming.now))


def written_marks(members: Members, transcript: Transcript, dialect: Dialect) -> tuple[int, bool]:
    """The number of markers that the client wrote, honoured or not, and whether some are in a dialect that this
    provider refuses. Text within a JSON string is not counted, because the quotes of the key would be escaped there."""
    raw = [transcript.messages[index].raw for index in transcript.marked]
    if "tools" in members:
        raw.append(bytes(members["tools"]))
    counts = {key: sum(text.count(b'"%s"' % key.encode()) for text in raw) for key in MARK_KEYS}
    return sum(counts.values()), any(count > 0 and key != dialect.key for key, count in counts.items())
