"""Everything that was thought about one request, and what follows from it alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy.core.caches import Cache
from proxy.core.caches.prompt import Bill, Prompt
from proxy.core.forecast.forecast import Forecast
from proxy.core.layout.layout import Layout
from proxy.core.layout.notices import elsewhere
from proxy.core.layout.orders import RequestElements
from proxy.core.layout.tiers import Tier, Tracked
from proxy.core.planner.candidates import Choice
from proxy.core.planner.plan import UNMARKED, Moved
from proxy.core.providers import CacheProfile, Family
from proxy.core.providers.affinity_key import RoutingKey
from proxy.core.reasons import Reason
from proxy.core.request.view import RecognisedRequest
from proxy.core.sessions.observation import RequestObservation
from proxy.core.sessions.session import Session
from proxy.core.shadow.shadow_caches import ShadowCaches

_REMEMBERED_LAYOUTS = 3
_IN_ORDER = frozenset({Reason.MARKED, Reason.SPLIT, Reason.CLIENT_OPTIMAL})


@dataclass(slots=True)
class Draft:
    """Everything that was thought about one request; ``explain`` shows it. ``came`` is the client's own layout with the
    tools as it sent them; ``elsewhere`` are the bills of what was sent and of the client's own, were system messages
    within the conversation put elsewhere than is believed. ``after`` are the turns of the session's request that
    was the newest when this one was planned."""

    session: Session
    observation: RequestObservation
    recognised: RecognisedRequest
    material: RequestElements
    forecast: Forecast
    choice: Choice
    natural: Layout
    own_prompt: Prompt
    scope: tuple[bytes, CacheProfile]
    own: Bill
    is_control: bool = False
    client: str = ""
    key: RoutingKey = field(default_factory=RoutingKey)
    steady: bytes | None = None
    at: float = 0.0
    sent: Bill | None = None
    use_own: bool = False
    is_begun: bool = False
    waiting: list[tuple[Cache, Prompt]] = field(default_factory=list)
    sent_prompt: Prompt | None = None
    last_use: tuple[float, float] | None = None
    came: Layout | None = None
    elsewhere: tuple[Bill, Bill] | None = None
    after: tuple[bytes, ...] = ()


def named(draft: Draft, profile: CacheProfile) -> str:
    """Why nothing is done, in particular; where something is, the choice says why."""
    choice = draft.choice
    if draft.steady is not None and choice.reason is Reason.CLIENT_OPTIMAL:
        return Reason.STEADY_TOOLS
    if profile.hoists_system and draft.observation.has_new_notice and choice.reason in _IN_ORDER:
        return Reason.HOISTED_NOTICE
    if choice.reason is not Reason.CLIENT_OPTIMAL or draft.own_prompt.marks or draft.recognised.transcript.marked:
        return choice.reason
    if profile.family is not Family.MARKER or choice.layout.implicit:
        return Reason.NATURAL_ORDER
    return Reason.ONE_SHOT if draft.session.cohort.is_one_shot else Reason.NOTHING_STABLE


def passthrough_reason(draft: Draft, profile: CacheProfile, *, ignores_markers: bool) -> Reason | None:
    """Why the client's own request is sent although a plan exists."""
    session, layout = draft.session, draft.choice.layout
    if session.is_barred:
        return Reason.BARRED
    if profile.family is not Family.NONE and layout.total < profile.min_tokens:
        return Reason.BELOW_MINIMUM
    return Reason.MARKERS_IGNORED if ignores_markers else None


def put_elsewhere(draft: Draft, caches: ShadowCaches) -> list[tuple[Cache, Prompt]]:
    """Bill both requests as if system messages within the conversation were put elsewhere than is believed; what is
    stored then, so that the provider's report can tell which one holds."""
    if not draft.recognised.transcript.notices or draft.came is None:
        return []
    own = elsewhere(draft.came, draft.own_prompt.marks)
    sent = own if draft.use_own else elsewhere(draft.choice.layout, draft.choice.marks)
    if own is None or sent is None:
        return []
    draft.elsewhere = caches.sent.bill(sent, draft.at), caches.own.bill(own, draft.at)
    return [(caches.sent, sent)] if draft.is_begun else [(caches.sent, sent), (caches.own, own)]


def remember(session: Session, layout: Layout) -> None:
    """The session was sent this order: what begins like it may be read from the cache."""
    one = tuple(layout.digests)
    if one in session.layouts:
        session.layouts.remove(one)
    session.layouts.append(one)
    del session.layouts[:-_REMEMBERED_LAYOUTS]
    if one not in session.cohort.layouts:
        session.cohort.layouts.append(one)


def tier_tokens(draft: Draft) -> Mapping[str, int]:
    """Tokens of the context pieces by the tier that the tracker has them in."""
    tracker, sizes = draft.session.tracker, draft.material.sizes
    result: dict[str, int] = {}
    for item in draft.recognised.items():
        tier = tier_name(tracker.tier(item.key))
        result[tier] = result.get(tier, 0) + sizes.get(item.key, 0)
    return result


def tier_name(tier: Tier) -> str:
    """As it is shown."""
    return "active" if tier is Tier.ACTIVE else tier.name


def segment_tokens(choice: Choice) -> Mapping[str, int]:
    """Tokens by segment: one ends at each marker, what stands behind the last one is ``unmarked``."""
    result: dict[str, int] = {}
    before = 0
    for number, position in enumerate(sorted(choice.marks), 1):
        end = choice.layout.ends[position]
        result[str(number)] = end - before
        before = end
    result[UNMARKED] = choice.layout.total - before
    return result


def is_sibling(draft: Draft) -> bool:
    """Whether another request that was planned from the same state has counted already, and this one does not go on
    from it: parallel requests are one observation of their pieces."""
    newest = draft.session.turns
    return newest != draft.after and draft.observation.turns[: len(newest)] != newest


def advance_tiers(draft: Draft) -> list[Moved]:
    """Count the request for every piece's stability; which pieces change their tier."""
    sizes = draft.material.sizes
    items = [Tracked(i.key, i.digest, sizes.get(i.key, 0)) for i in draft.recognised.items()]
    changes = draft.session.tracker.update(items)
    return [
        Moved(c.key, c.source.name, c.target.name if isinstance(c.target, Tier) else "removed", c.reason)
        for c in changes
    ]
