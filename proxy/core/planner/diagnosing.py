"""The diagnosis of requests as they were sent: each is compared with the earlier ones of its conversation."""

from dataclasses import replace

from proxy.core.diagnosis.breaks import Break, BreakKind
from proxy.core.diagnosis.diagnose import compared
from proxy.core.diagnosis.record import PromptRecord
from proxy.core.diagnosis.sent import SentPrompt, sent_prompt
from proxy.core.digest import digest
from proxy.core.layout.layout import given_members
from proxy.core.lru import Bounded, LastUsed
from proxy.core.money.prices import Price
from proxy.core.planner.analysis import PlanAnalysis
from proxy.core.planner.in_flight import InFlight
from proxy.core.response.usage import Usage
from proxy.core.sessions.session import MAX_PROMPTS, SessionTable

_MOST_LAST = 256
_MOST_TALKS = 8192
_TALK_BYTES = 400
_NOTHING = SentPrompt()


class Diagnosing:
    """Says for each request why it was not read from the cache.

    The records of a session belong to the session, and are shared together with it. Two more things are kept here: the
    last layout of each session, which saves work, and the names by which a conversation is found when it continues with
    another model. Both are in memory only, each in about ``capacity_bytes``.
    """

    def __init__(self, sessions: SessionTable, capacity_bytes: int) -> None:
        self._sessions = sessions
        self._last: Bounded[str, SentPrompt] = Bounded(capacity_bytes, _sent_bytes, _MOST_LAST)
        self._talks: LastUsed[tuple[str, bytes], str] = LastUsed(min(_MOST_TALKS, capacity_bytes // _TALK_BYTES))

    def compare(self, in_flight: InFlight, *, is_own: bool) -> None:
        """Compare what is sent with what the conversation has sent before. ``is_own``: the client's own layout is sent.
        This is called again if it turns out later that the client's own layout is sent."""
        analysis = in_flight.analysis
        session, route = analysis.session, analysis.route
        layout = analysis.own.arrived if is_own else analysis.choice.layout
        marks = analysis.own.prompt.marks if is_own else analysis.choice.marks
        last = self._last.get(session.id, _NOTHING)
        head = PromptRecord(
            at=analysis.at,
            model=route.model,
            route=route.upstream,
            parameters=last.record.parameters if layout.seed == last.seed else _parameters(analysis),
            stops=sorted([layout.ends[position] for position in marks]),
            is_long="1h" in marks.values(),
        )
        in_flight.shows_own = is_own
        in_flight.sent = sent_prompt(layout, analysis.recognised.messages, head, last)
        in_flight.comparison = compared(self._before(analysis), in_flight.sent.record)

    def complete(self, in_flight: InFlight, usage: Usage | None, deviation: str, price: Price | None) -> Break | None:
        """The exchange counts, and the session remembers its record. Returns why the request was not read from the
        cache (None: it was). ``usage`` is the provider's report, and ``deviation`` says how it differs from what was
        expected. ``price`` is the model's price, None if it is not known."""
        analysis, sent, comparison = in_flight.analysis, in_flight.sent, in_flight.comparison
        if sent is None:
            return None
        session, profile = analysis.session, analysis.profile
        record = sent.record.answered(usage, profile)
        found = comparison.diagnosed(usage, profile, price, deviation) if comparison is not None else None
        if found is not None and not found.lost:
            found = None
        elif found is not None and found.kind is BreakKind.REORDERED and not in_flight.shows_own:
            found = replace(found, is_waste=False)  # the planner has weighed what it costs
        session.prompts = [*session.prompts, record][-MAX_PROMPTS:]
        self._last.put(session.id, sent)
        return found

    def _before(self, analysis: PlanAnalysis) -> list[PromptRecord]:
        """The records of the conversation. At its first request to a model, these are its records at another model."""
        session, scope = analysis.session, analysis.route.scope
        pairs, before = analysis.recognised.transcript.pairs, session.prompts
        if not before:
            names = (self._talks.get((scope, pair), "") for _, pair in reversed(pairs[1:]))
            found = (self._sessions.get(name) for name in names)
            other = next((one for one in found if one is not None and one is not session), None)
            before = other.prompts if other is not None else before
        if len(pairs) > 1:
            self._talks.put((scope, pairs[-1][1]), session.id)
        return before


def _parameters(analysis: PlanAnalysis) -> dict[str, bytes]:
    breaking = analysis.profile.breaking
    names = (*breaking.before_tools, *breaking.before_system, *breaking.before_messages)
    members = given_members(analysis.members, names)
    return {name: digest(raw) for name, raw in members.items()}


def _sent_bytes(sent: SentPrompt) -> int:
    return sent.record.about_bytes + 80 * len(sent.digests)
