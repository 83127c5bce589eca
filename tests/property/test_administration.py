"""Whatever is sent to the service: it answers or refuses, and what it keeps can be used."""

import asyncio
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.app.admin import AdminService
from proxy.engine.exchange import Principal
from proxy.kit.errors import Conflict, InvalidRequest, MethodNotAllowed, NotFound, Unauthorized
from proxy.models import Deployment, Transport
from proxy.protocol.providers import NONE
from proxy.storage import TeamRecord
from proxy.storage.sqlite import MemoryStore
from proxy.teams.authentication import Declared, Directory, Identity
from proxy.teams.bookings import LimitResolver, window_at
from tests.doubles import ManualClock
from tests.examples import examples

NOW = 1_795_000_000.0
MODEL = Deployment("m", "m", Transport.HTTP, NONE)

_TEXT = st.sampled_from(
    ["red", "blue", "", "*", "a*", "gpt-5", "month", "rolling:1d", "rolling:9999999999d", "UTC", "Europe/Berlin",
     "user", "model", "key", "team", "tier", "forward", "30d", "2027-01-01", "0001-01-01", "9999-12-31T23:59:59-23:59",
     "1e300", "nan", "https://h/x", "https://[", "none", "\x00", "../x", "é", "a" * 64]
) | st.text(max_size=8)  # fmt: skip
_NUMBER = st.integers(-5, 5) | st.integers() | st.floats() | st.sampled_from([10**15, 9_000_000, 1e-9, 1e308])
_JSON: st.SearchStrategy[Any] = st.none() | st.booleans() | _NUMBER | _TEXT | st.lists(_TEXT, max_size=3)
_FIELDS = (
    "name", "team", "mode", "models", "requests_per_minute", "tokens_per_minute", "client_keys", "sha256", "user",
    "expires_at", "note", "scope", "subject", "usd", "soft_usd", "tokens", "soft_tokens", "window", "timezone",
    "assumed_output_tokens", "webhook",
)  # fmt: skip
_BODY = st.dictionaries(st.sampled_from(_FIELDS), _JSON, max_size=5) | _JSON
_LIKELY = st.fixed_dictionaries(
    {"team": st.just("red")},
    optional={"usd": _NUMBER, "tokens": _NUMBER, "soft_usd": _NUMBER, "window": _TEXT, "timezone": _TEXT,
              "scope": _TEXT, "subject": _TEXT, "name": _TEXT, "user": _TEXT, "expires_at": _NUMBER | _TEXT,
              "mode": _TEXT},
)  # fmt: skip
_PATH = st.sampled_from(
    ["teams", "keys", "budgets", "teams/red", "teams/blue", "budgets/red/total", "spend", "entries", "x"]
)
_PARAMETERS = st.sampled_from(["since", "until", "by", "team", "timezone", "limit", "format", "after"])
_QUERY = st.dictionaries(_PARAMETERS, _TEXT, max_size=3)
_CALL = st.tuples(st.sampled_from(["GET", "POST", "PATCH", "DELETE"]), _PATH, _QUERY, _BODY | _LIKELY)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(_CALL, min_size=1, max_size=8))
def test_the_admin_api_answers_or_refuses_and_what_it_keeps_is_usable(
    calls: list[tuple[str, str, dict[str, str], object]],
) -> None:
    async def main() -> None:
        store = MemoryStore()
        directory = Directory(Declared([TeamRecord("red")]), store)
        await directory.load()
        service, who, rules = (
            AdminService(directory, store, ManualClock(NOW)),
            Identity(directory, b"s"),
            LimitResolver(directory, ""),
        )
        for method, path, query, body in calls:
            try:
                reply = await service.answer(method, path, query if method in ("GET", "DELETE") else {}, body)
            except (InvalidRequest, NotFound, Conflict, MethodNotAllowed):
                continue
            if method == "POST" and path == "keys" and "key" in reply:
                admitted(who, reply["key"])
        for key in directory.snapshot.keys.values():
            assert key.team in directory.snapshot.teams
        for team in directory.snapshot.teams:
            for rule in rules.rules(Principal("s", team=team, key_id="key-1", user="alice"), MODEL):
                window_at(rule.window, rule.timezone, NOW)

    asyncio.run(main())


def admitted(who: Identity, key: str) -> None:
    with suppress(Unauthorized):  # made with an expiry in the past
        assert who.admit([("authorization", f"Bearer {key}")], NOW).virtual
