"""The requests of a session as a search sees them: their material, and which of it later requests hold, too."""

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.core.digest import digest
from proxy.core.layout.layout import seed_of, slots_of
from proxy.core.layout.orders import RequestElements, request_elements
from proxy.core.layout.relocation import moved_elements
from proxy.core.providers import CacheProfile
from proxy.core.recognition.pieces import ContextPiece, Recogniser
from proxy.core.request.message import MessageReader
from proxy.core.request.parsed_body import parse_chat
from proxy.core.request.tokens import Encode, TokenCounter
from proxy.core.request.tools import ToolReader
from proxy.core.request.transcript import Transcript
from proxy.core.request.view import RecognisedRequest, recognise_request
from proxy.core.sessions.observation import commit_reading, read_request
from proxy.core.sessions.session import Session, SessionTable
from proxy.core.wire.json_body import ChatRequest, Unreadable
from proxy.errors import UpstreamRejected
from proxy.replay.trace import Step
from proxy.upstream.embedded import PromptReader

_FADING = 0.85


@dataclass(frozen=True, slots=True)
class Shot:
    """One request of the session.

    ``cohort`` numbers requests that begin alike, and ``following`` are the later requests of the same cohort.
    ``materials`` is the content as it came and, where the system prompt can be made stable, with its volatile lines
    moved.
    """

    index: int
    at: float
    request: ChatRequest
    recognised: RecognisedRequest
    scope: bytes
    settings: bytes
    slots: int
    cohort: int
    following: tuple[int, ...]
    materials: tuple[RequestElements, ...]
    lives: dict[bytes, int]
    returns: dict[bytes, float]

    def life(self, item: ContextPiece) -> int:
        """How many of the cohort's next requests in a row hold the piece unchanged."""
        return self.lives.get(item.digest, 0)

    def presence(self, item: ContextPiece) -> float:
        """In how many of the cohort's requests the piece stands at all. Nearer requests count more."""
        return self.returns.get(item.digest, 0.0)


class SceneReader:
    """Reads a session twice: what is learnt by its end is then known from its beginning."""

    def __init__(self, profile: CacheProfile, encode: Encode, recognisers: Sequence[Recogniser]) -> None:
        self.prompts = PromptReader(profile, encode)
        self._profile = profile
        self._counter = TokenCounter(encode)
        self._messages = MessageReader(self._counter, recognisers)
        self._tools = ToolReader(self._counter)

    def read(self, steps: Sequence[Step]) -> list[Shot] | None:
        """The shots; None where a request cannot be taken apart, or is refused by the provider."""
        try:
            requests = [parse_chat(step.body) for step in steps]
            messages = [Transcript([self._messages.read(raw) for raw in one.messages]) for one in requests]
            scopes = [self.prompts.prompt(step.body).scope for step in steps]
        except (Unreadable, UpstreamRejected):
            return None
        sessions = self._sessions(requests, messages, steps)
        cohorts = _cohorts(sessions, scopes)
        views = [
            recognise_request(request, each, session.is_movable)
            for request, each, session in zip(requests, messages, sessions, strict=True)
        ]
        present = [{item.digest for item in recognised.items()} for recognised in views]
        shots = []
        for index, (step, request, recognised) in enumerate(zip(steps, requests, views, strict=True)):
            following = tuple(j for j in range(index + 1, len(steps)) if cohorts[j] == cohorts[index])
            shots.append(
                Shot(
                    index=index,
                    at=step.at,
                    request=request,
                    recognised=recognised,
                    scope=scopes[index],
                    settings=self._settings(request, messages[index]),
                    slots=slots_of(request.members, self._profile),
                    cohort=cohorts[index],
                    following=following,
                    materials=self._materials(request, recognised),
                    lives={one: _run(one, present, following) for one in present[index]},
                    returns={one: _presence(one, present, following) for one in present[index]},
                )
            )
        return shots

    def _sessions(
        self, requests: Sequence[ChatRequest], messages: Sequence[Transcript], steps: Sequence[Step]
    ) -> list[Session]:
        """Each request's session as the planner finds it, with all that it will have shown by its end."""
        table = SessionTable()
        found = []
        for request, each, step in zip(requests, messages, steps, strict=True):
            tools = self._tools.read(request.members.get("tools"))
            key = tools[0].digest if tools else b""
            session = table.find(table.place("search", request.model, "", each, key))
            session.notice(each)
            recognised = recognise_request(request, each, session.is_movable)
            commit_reading(session, read_request(session, recognised, key, step.at), step.at)
            found.append(session)
        return found

    def _settings(self, request: ChatRequest, messages: Transcript) -> bytes:
        """Parameters that are rendered in front of the messages: a change breaks all behind it."""
        seed = seed_of(request.members, self._profile, b"", has_media=messages.has_media)
        return digest(seed.system, seed.settings)

    def _materials(self, request: ChatRequest, recognised: RecognisedRequest) -> tuple[RequestElements, ...]:
        own = request_elements(recognised, self._tools.read(request.members.get("tools")), self._counter)
        moved = moved_elements(recognised, own, self._counter)
        return (own,) if moved is None else (own, moved)


def _cohorts(sessions: Sequence[Session], scopes: Sequence[bytes]) -> list[int]:
    numbers: dict[tuple[int, bytes], int] = {}
    return [numbers.setdefault((id(s.cohort), scope), len(numbers)) for s, scope in zip(sessions, scopes, strict=True)]


def _run(one: bytes, present: Sequence[set[bytes]], following: Sequence[int]) -> int:
    count = 0
    for j in following:
        if one not in present[j]:
            break
        count += 1
    return count


def _presence(one: bytes, present: Sequence[set[bytes]], following: Sequence[int]) -> float:
    return sum(_FADING**distance for distance, j in enumerate(following) if one in present[j])
