"""Brings together what several processes know about the same sessions, cohorts and caches, through named blobs.

A ``StateLookup`` says under which ``names`` other processes may have left something about a request, and can ``adopt``
it. ``snapshot`` makes the blobs to leave for other processes. A name may lead to another one (a session mark leads to a
session's id). So a caller asks for names, loads those that it has not loaded yet, and asks again, until there is
nothing new.

Of two versions, the one that has seen more counts. If processes write at the same time, facts may be lost. This makes a
forecast less precise, but never loses a request.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from proxy.core.caches import Cache
from proxy.core.caches.prompt import Prompt
from proxy.core.digest import digest
from proxy.core.request.route import Route
from proxy.core.request.transcript import Transcript
from proxy.core.sessions.sent_fronts import FrontTable, names_of
from proxy.core.sessions.session import PreambleKey, Session, SessionMark, SessionTable
from proxy.core.sessions.snapshot import (
    COHORT,
    HEAD,
    SESSION,
    SavedEntries,
    held_along,
    hold,
    pack_cohort,
    pack_head,
    pack_session,
    restore_cohort,
    restore_head,
    restore_session,
    unpacked,
)
from proxy.core.shadow.shadow_caches import ShadowCaches
from proxy.core.wire.json_body import Unreadable

# The beginnings of the names in a store. "l" stands for cohorts, since "c" stands for costs. The names of sent fronts
# begin with "f" and "g".
_SESSION_MARK, _SESSION, _COHORT, _HEAD, _COSTS = "m", "s", "l", "h", "c"

SENT: Final = "sent"
OWN: Final = "own"


class StateLookup:
    """Finds the state that other processes have left for one request. ``adopt`` may reveal further names to ask for.
    ``place`` holds the keys of the request, as far as they are known now."""

    def __init__(
        self,
        sessions: SessionTable,
        route: Route,
        transcript: Transcript,
        tools: bytes,
        account: bytes,
        caches: ShadowCaches,
        fronts: FrontTable,
    ) -> None:
        """``caches`` are those of the ``account``."""
        self._sessions = sessions
        self._request = route.scope, route.named, route.hint, transcript, tools
        self._caches = _by_kind(caches)
        self._costs_name = costs_name(account)
        self._costs = caches.others
        self._fronts = fronts
        self._front_names = names_of(route.scope, transcript, tools)
        self.place = sessions.place(*self._request)

    def names(self) -> list[str]:
        """The names under which something may be known about the request, as far as they are known now."""
        place = self.place
        cohorts, preambles = self._keys()
        found = [self._costs_name, *map(_cohort_name, cohorts), *map(_head_name, preambles), *self._front_names]
        ids = [self._sessions.known(mark) for mark in place.session_marks]
        # A session that began here while an older one was not known shares marks with the older one.
        found += [_SESSION + session for session in dict.fromkeys(filter(None, [*ids, place.given_id]))]
        # For a mark that is known here, other processes need not be asked.
        found += [_session_mark_name(mark) for mark, known in zip(place.session_marks, ids, strict=True) if not known]
        return found

    def is_known(self) -> bool:
        """Whether this process has the request's session."""
        known = map(self._sessions.known, self.place.session_marks)
        return self._sessions.get(next(filter(None, known), self.place.given_id)) is not None

    def adopt(self, blobs: Mapping[str, bytes]) -> None:
        """Take over the state of other processes. Blobs that cannot be read are skipped."""
        place, sessions = self.place, self._sessions
        for mark in place.session_marks:
            pointer = blobs.get(_session_mark_name(mark))
            if pointer is not None:
                sessions.point(mark, pointer.decode("utf-8", "replace"))
        for name, blob in blobs.items():
            if name.startswith(_SESSION):
                with suppress(Unreadable):
                    self._take_session(blob)
        sessions.unite(place)
        cohorts, preambles = self._keys()
        takers: dict[str, Callable[[bytes], None]] = {
            _cohort_name(key): partial(self._take_cohort, key) for key in cohorts
        }
        takers |= {_head_name(preamble): partial(self._take_head, preamble) for preamble in preambles}
        for name in self._front_names:
            takers[name] = partial(self._fronts.adopt, name)
        takers[self._costs_name] = partial(self._costs.adopt, process=sessions.prefix)
        for name, take in takers.items():
            if name in blobs:
                with suppress(Unreadable):
                    take(blobs[name])
        self.place = sessions.place(*self._request, place)

    def _keys(self) -> tuple[set[bytes], set[PreambleKey]]:
        """The cohorts and the kinds of heads to which a request may belong: its own, and those of its session. They may
        differ, because instructions may have changed since the session began."""
        place, sessions = self.place, self._sessions
        cohorts, preambles = {place.cohort_key}, {place.preamble_key}
        for mark in place.session_marks:
            session = sessions.get(sessions.known(mark))
            if session is not None:
                cohorts.add(session.cohort_key)
                preambles.add(session.preamble_key)
        return cohorts, preambles

    def _take_session(self, blob: bytes) -> None:
        packed = unpacked(SESSION, blob)
        session = self._sessions.get(packed.id)
        if session is None:
            session = self._sessions.begin(packed.id, packed.cohort_key, packed.preamble_key, packed.has_tools)
        if (packed.memory.requests, packed.memory.last_at) > (session.requests, session.last_at):
            restore_session(packed, session)
        _hold(self._caches, packed.held)

    def _take_head(self, preamble: PreambleKey, blob: bytes) -> None:
        restore_head(unpacked(HEAD, blob), self._sessions.preamble(preamble))

    def _take_cohort(self, key: bytes, blob: bytes) -> None:
        packed = unpacked(COHORT, blob)
        cohort = self._sessions.cohort(key, packed.cohort.has_tools)
        if (packed.cohort.started, packed.cohort.last_at) > (cohort.started, cohort.last_at):
            restore_cohort(packed, cohort)
        _hold(self._caches, packed.held)


def snapshot(session: Session, caches: ShadowCaches, sent: Prompt, own: Prompt) -> dict[str, bytes]:
    """The blobs to leave for other processes once an exchange is settled."""
    pairs = [(kind, cache, sent if kind == SENT else own) for kind, cache in _by_kind(caches).items()]
    path = {kind: held_along(cache, prompt) for kind, cache, prompt in pairs}
    opening = {kind: held_along(cache, prompt, opening_only=True) for kind, cache, prompt in pairs}
    blobs = {_session_mark_name(mark): session.id.encode() for mark in session.known_by}
    blobs[_SESSION + session.id] = pack_session(session, path)
    blobs[_cohort_name(session.cohort_key)] = pack_cohort(session.cohort, opening)
    blobs[_head_name(session.preamble_key)] = pack_head(session.shared_head)
    return blobs


def _by_kind(caches: ShadowCaches) -> Mapping[str, Cache]:
    """The two caches of an account: that of the requests as they were sent, and that of the client's own requests."""
    return {SENT: caches.sent, OWN: caches.own}


def _hold(caches: Mapping[str, Cache], held: Mapping[str, list[SavedEntries]]) -> None:
    for kind, groups in held.items():
        if kind in caches:
            hold(caches[kind], groups)


def costs_name(scope: bytes) -> str:
    """The name under which the sums of one route are known."""
    return _COSTS + scope.hex()


def _session_mark_name(mark: SessionMark) -> str:
    return _SESSION_MARK + digest(*mark).hex()


def _cohort_name(key: bytes) -> str:
    return _COHORT + key.hex()


def _head_name(key: PreambleKey) -> str:
    base, tools, count = key
    return _HEAD + digest(base, tools, b"%d" % count).hex()
