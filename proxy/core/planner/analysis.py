"""The decision about one request and its reasons, and the values that follow from the decision alone."""

from collections.abc import Mapping

from proxy.core.forecast.forecast import Candidate, Forecast
from proxy.core.layout.orders import RequestElements
from proxy.core.planner.candidates import Choice, Pricing
from proxy.core.planner.incoming_chat import OwnRequest
from proxy.core.providers import CacheProfile, Family
from proxy.core.providers.affinity_key import RoutingKey
from proxy.core.reasons import Reason
from proxy.core.request.route import Route
from proxy.core.request.transcript import Transcript
from proxy.core.request.view import RecognisedRequest
from proxy.core.sessions.observation import RequestObservation
from proxy.core.sessions.session import Session
from proxy.core.value import dataclass, field
from proxy.core.wire.json_body import Members

UNMARKED = "unmarked"
"""The segment behind the last marker."""

_IN_ORDER = frozenset({Reason.MARKED, Reason.SPLIT, Reason.CLIENT_OPTIMAL})


@dataclass(frozen=True, slots=True)
class PlanAnalysis:
    """One request as the planner saw it at the time ``at``, and the candidate that it chose. ``pricing`` is what the
    candidates were judged by. ``explain`` shows the analysis.

    ``route`` has the cache profile, corrected by what the provider's reports have shown. ``members`` are those of the
    client's body. ``steady_tools`` are the tools as this client first sent them, if they are sent in that form.
    ``turns_before`` are the turns of the session's newest request when this request was planned. ``came`` are the
    messages as they came and the digest of the tools as they came. ``key`` is the routing key that is added to the
    request. ``natural`` is the client's order as it was judged, if that was needed.
    """

    session: Session
    observation: RequestObservation
    recognised: RecognisedRequest
    elements: RequestElements
    forecast: Forecast
    own: OwnRequest
    choice: Choice
    pricing: Pricing
    route: Route
    members: Members
    at: float
    turns_before: tuple[bytes, ...]
    came: tuple[Transcript, bytes]
    steady_tools: bytes | None = None
    key: RoutingKey = field(default_factory=RoutingKey)
    natural: Candidate | None = None

    @property
    def profile(self) -> CacheProfile:
        """The rules of the provider's cache."""
        return self.route.profile

    @property
    def account(self) -> bytes:
        """The name of the cache that the provider keeps this request in."""
        return self.choice.layout.seed.scope

    def reason(self) -> str:
        """Why the chosen candidate is sent. If nothing is changed, the reason says why."""
        choice, profile = self.choice, self.profile
        if self.steady_tools is not None and choice.reason is Reason.CLIENT_OPTIMAL:
            return Reason.STEADY_TOOLS
        if profile.hoists_system and self.observation.has_new_notice and choice.reason in _IN_ORDER:
            return Reason.HOISTED_NOTICE
        is_marked = bool(self.own.prompt.marks or self.recognised.transcript.marked)
        if choice.reason is not Reason.CLIENT_OPTIMAL or is_marked:
            return choice.reason
        if profile.family is not Family.MARKER or choice.layout.implicit:
            return Reason.NATURAL_ORDER
        return Reason.ONE_SHOT if self.session.cohort.is_one_shot else Reason.NOTHING_STABLE

    def passthrough_reason(self, *, ignores_markers: bool) -> Reason | None:
        """Why the client's own request is sent although a candidate was chosen; None if the candidate is sent."""
        if self.session.is_barred:
            return Reason.BARRED
        if self.profile.family is not Family.NONE and self.choice.layout.total < self.profile.least_marked:
            return Reason.BELOW_MINIMUM
        return Reason.MARKERS_IGNORED if ignores_markers else None

    def tier_tokens(self) -> Mapping[str, int]:
        """The tokens of the context pieces, by the tier that the tracker gives each piece."""
        result: dict[str, int] = {}
        for item in self.recognised.items():
            tier = self.session.tracker.tier(item.key).label
            result[tier] = result.get(tier, 0) + self.elements.sizes.get(item.key, 0)
        return result


def segment_tokens(choice: Choice) -> Mapping[str, int]:
    """Tokens by segment. A segment ends at each marker; the text behind the last marker is ``unmarked``."""
    result: dict[str, int] = {}
    before = 0
    for number, position in enumerate(sorted(choice.marks), 1):
        end = choice.layout.ends[position]
        result[str(number)] = end - before
        before = end
    result[UNMARKED] = choice.layout.total - before
    return result
