"""The requests of a recorded session as a search sees them: their material, and how much of it later requests hold.

Everything that is learnt by the session's end is known from its beginning.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from proxy.core.layout.layout import PrefixSettings, seed_of, slots_of
from proxy.core.layout.orders import (
    RequestElements,
    behind_prefix,
    documents_left,
    request_elements,
    valid_prefix,
    whole_groups,
)
from proxy.core.layout.relocation import moved_elements
from proxy.core.providers import CacheProfile
from proxy.core.recognition.pieces import ContextPiece, Recogniser
from proxy.core.request.element import Element, ElementKind
from proxy.core.request.message import MessageReader
from proxy.core.request.parsed_body import ParsedBody, parse_body
from proxy.core.request.tokens import Encode, TokenCounter
from proxy.core.request.tools import ToolReader
from proxy.core.request.transcript import Transcript
from proxy.core.request.view import RecognisedRequest, recognise_request
from proxy.core.sessions.observation import commit_reading, read_request
from proxy.core.sessions.session import Session, SessionTable
from proxy.core.value import dataclass
from proxy.replay.trace import Step
from proxy.upstream.embedded import PromptReader

LOOK_AHEAD = 5
"""How many of a cohort's next requests count."""
_FADING = 0.85
_MOST_THRESHOLDS = 4
# Greater than any number of tokens: life decides, and size decides only between pieces of equal life.
_LIFE_WEIGHT = 1e9

Orders = Sequence[Sequence[bytes]]
"""Earlier orders, by the digests of their elements."""


@dataclass(frozen=True, slots=True)
class Shot:
    """One request of the session. ``cohort`` numbers requests that begin alike. ``materials`` is the content as it came
    and, if the system prompt can be made stable, with its volatile lines moved. ``lives`` tells, by a piece's digest,
    how many of the cohort's next requests in a row hold the piece. ``returns`` tells how many of them hold it at all;
    nearer ones count more. ``ahead`` are the next requests that come in time to read what this one stores, by their
    index, each with its rank in its own cohort."""

    index: int
    at: float
    request: ParsedBody
    recognised: RecognisedRequest
    seed: PrefixSettings
    slots: int
    cohort: int
    materials: tuple[RequestElements, ...]
    lives: Mapping[bytes, int]
    returns: Mapping[bytes, float]
    ahead: Mapping[int, int]

    def by_life(self, item: ContextPiece) -> float:
        """The weight of a piece by how long it stays as it is."""
        return self.lives.get(item.digest, 0) * _LIFE_WEIGHT + len(item.text)

    def by_presence(self, item: ContextPiece) -> float:
        """The weight of a piece by how often later requests hold it."""
        return self.returns.get(item.digest, 0.0) * _LIFE_WEIGHT + len(item.text)

    def orders(self, before: Orders) -> Iterator[tuple[Element, ...]]:
        """Every order that is worth trying, behind any of the earlier orders or anew."""
        yield self.materials[0].natural
        for number, material in enumerate(self.materials):
            if not (material.is_movable or number):
                continue
            thresholds = _spread(sorted({self.lives.get(item.digest, 0) for item in material.items.values()}))
            for kept in (material.fixed, *self._prefixes(material, before)):
                yield behind_prefix(material, kept, self.by_life)
                yield behind_prefix(material, kept, self.by_presence)
                yield from (self._in_front(material, kept, threshold) for threshold in thresholds)

    def _prefixes(self, material: RequestElements, before: Orders) -> Iterator[tuple[Element, ...]]:
        """The part of each earlier order that is still valid, as a whole, and cut in front of the pieces that change
        soon."""
        for order in before:
            kept = valid_prefix(material, order)
            lives = [LOOK_AHEAD if e.item is None else self.lives.get(e.item.digest, 0) for e in kept]
            for limit in (-1, 0, 1, 3):
                cut = next((place for place, life in enumerate(lives) if life <= limit), len(kept))
                shorter = valid_prefix(material, order[:cut])
                if len(shorter) > len(material.fixed):
                    yield shorter

    def _in_front(self, material: RequestElements, kept: Sequence[Element], threshold: int) -> tuple[Element, ...]:
        """A prefix, then the pieces that live for so many requests, the longest-lived first, then the conversation."""
        found, forms = [*kept, *documents_left(material, kept, self.by_life)], material.forms
        keys, whole = {e.key for e in kept}, {e.message for e in kept if e.kind is ElementKind.WHOLE}
        left = [(item, group) for group in material.groups if group.message not in whole for item in group.items]
        left = sorted((one for one in left if one[0].key not in keys), key=lambda one: -self.by_life(one[0]))
        for item, group in list(left):
            if self.lives.get(item.digest, 0) >= threshold:
                left.remove((item, group))
                form = forms.parts if any(other is group for _, other in left) else forms.lasts
                found.append(forms.wholes[group.message] if len(group.items) == 1 else form[item.key])
        return behind_prefix(material, whole_groups(material, found), self.by_life)


class ShotReader:
    """Reads a session twice, so that everything that is learnt by its end is known from its beginning."""

    def __init__(self, profile: CacheProfile, encode: Encode, recognisers: Sequence[Recogniser]) -> None:
        self._prompts, self._profile = PromptReader(profile, encode), profile
        self._counter = TokenCounter(encode)
        self._messages, self._tools = MessageReader(self._counter, recognisers), ToolReader(self._counter)

    def read(self, steps: Sequence[Step]) -> list[Shot]:
        """The shots. Raises Unreadable if a request cannot be taken apart, and UpstreamRejected if the provider refuses
        a request."""
        requests = [parse_body(step.body).chat() for step in steps]
        transcripts = [Transcript([self._messages.read(raw) for raw in one.unread()]) for one in requests]
        scopes = [self._prompts.prompt(step.body).scope for step in steps]
        table = SessionTable()
        of = zip(requests, transcripts, steps, strict=True)
        sessions = [self._session(table, request, transcript, step) for request, transcript, step in of]
        numbers: dict[tuple[int, bytes], int] = {}
        cohorts = [
            numbers.setdefault((id(session.cohort), scope), len(numbers))
            for session, scope in zip(sessions, scopes, strict=True)
        ]
        both = zip(transcripts, sessions, strict=True)
        views = [recognise_request(each, session.is_movable) for each, session in both]
        present = [{item.digest for item in view.items()} for view in views]
        shots = []
        for index, (step, request, view) in enumerate(zip(steps, requests, views, strict=True)):
            following = [present[j] for j in range(index + 1, len(steps)) if cohorts[j] == cohorts[index]]
            has_media = transcripts[index].has_media
            shots.append(
                Shot(
                    index=index,
                    at=step.at,
                    request=request,
                    recognised=view,
                    seed=seed_of(request.members, self._profile, scopes[index], has_media=has_media),
                    slots=slots_of(request.members, self._profile),
                    cohort=cohorts[index],
                    materials=self._materials(request, view),
                    lives={one: _run(one, following) for one in present[index]},
                    returns={one: _presence(one, following) for one in present[index]},
                    ahead=dict(self._ahead(index, steps, cohorts)),
                )
            )
        return shots

    def _session(self, table: SessionTable, request: ParsedBody, transcript: Transcript, step: Step) -> Session:
        """The request's session as the planner finds it, with everything that it will have shown by its end."""
        tools = self._tools.read(request.members.get("tools"))
        key = tools[0].digest if tools else b""
        session = table.find(table.place("search", request.model, "", transcript, key))
        session.notice(transcript)
        recognised = recognise_request(transcript, session.is_movable)
        commit_reading(session, read_request(session, recognised, key, step.at), step.at)
        return session

    def _materials(self, request: ParsedBody, view: RecognisedRequest) -> tuple[RequestElements, ...]:
        tools, has_spans = self._tools.read(request.members.get("tools")), self._profile.stores_prefixes
        own = request_elements(view, tools, self._counter, has_spans=has_spans)
        moved = moved_elements(view, own, self._counter)
        return (own,) if moved is None else (own, moved)

    def _ahead(self, index: int, steps: Sequence[Step], cohorts: Sequence[int]) -> Iterator[tuple[int, int]]:
        """The next requests of each cohort that come while an entry still lives, each with its rank."""
        later = sorted(range(index + 1, len(steps)), key=lambda j: (cohorts[j], j))
        for _, some in groupby(later, key=lambda j: cohorts[j]):
            used = steps[index].at
            for rank, j in enumerate(list(some)[:LOOK_AHEAD]):
                if steps[j].at - used >= self._profile.life_s:
                    break
                used = steps[j].at
                yield j, rank


def _spread(lives: Sequence[int]) -> list[int]:
    """A limited number of thresholds, with the extremes among them."""
    last, most = len(lives) - 1, _MOST_THRESHOLDS - 1
    return list(lives) if last <= most else [lives[i * last // most] for i in range(most + 1)]


def _run(one: bytes, following: Sequence[set[bytes]]) -> int:
    return next((count for count, present in enumerate(following) if one not in present), len(following))


def _presence(one: bytes, following: Sequence[set[bytes]]) -> float:
    return sum(_FADING**distance for distance, present in enumerate(following) if one in present)
