"""Keys, teams, and what a request says about its session."""

import pytest

from proxy.core.modes import Mode
from proxy.errors import Unauthorized
from proxy.identity import Identity, KeyList
from proxy.ports import Headers, Subject

SALT = b"s" * 32
OPEN = Identity([], SALT)
CLOSED = Identity(
    [KeyList("red", ("sk-red", "sk-red-2"), Mode.OBSERVE), KeyList("default", ("sk-master",))],
    SALT,
)


def admit(identity: Identity, *headers: tuple[str, str]) -> Subject:
    return identity.admit(headers, now=0.0)


def bearer(key: str) -> tuple[str, str]:
    return "authorization", f"Bearer {key}"


def test_without_keys_any_key_is_accepted_and_tells_clients_apart() -> None:
    one, two, none = admit(OPEN, bearer("a")), admit(OPEN, bearer("b")), admit(OPEN)
    assert len({one.scope, two.scope, none.scope}) == 3
    assert admit(OPEN, bearer("a")) == one
    assert (one.team, one.mode, one.virtual) == ("default", Mode.TIER, False)


@pytest.mark.parametrize(
    "header",
    [bearer("k"), ("authorization", "bearer k"), ("Authorization", "Bearer  k "), ("authorization", "k"),
     ("x-api-key", "k"), ("api-key", "k")],
)  # fmt: skip
def test_a_key_may_come_in_any_header_that_clients_use(header: tuple[str, str]) -> None:
    assert admit(OPEN, header) == admit(OPEN, bearer("k"))


def test_a_teams_key_has_the_teams_name_and_mode_and_is_ours() -> None:
    subject = admit(CLOSED, bearer("sk-red"))
    assert (subject.team, subject.mode, subject.virtual) == ("red", Mode.OBSERVE, True)
    assert admit(CLOSED, bearer("sk-red-2")).scope != subject.scope
    assert admit(CLOSED, bearer("sk-master")).team == "default"


@pytest.mark.parametrize("headers", [[], [("authorization", "")], [("cookie", "sk-red")]])
def test_with_keys_configured_a_request_without_one_is_refused(headers: Headers) -> None:
    with pytest.raises(Unauthorized, match="No API key: send"):
        CLOSED.admit(headers, 0.0)


@pytest.mark.parametrize("key", ["sk-re", "sk-redd", "SK-RED", "Bearer", "sk-red\udc80", "ключ"])
def test_an_unknown_key_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(Unauthorized) as caught:
        admit(CLOSED, bearer(key))
    assert caught.value.status == 401
    assert caught.value.code == "invalid_api_key"
    assert key not in caught.value.message


def test_a_known_key_counts_beside_an_unknown_one() -> None:
    # Claude Code sends a stored key as x-api-key beside the configured token.
    assert admit(CLOSED, bearer("sk-other"), ("x-api-key", "sk-red")).team == "red"


def test_scopes_hold_no_key_and_depend_on_the_salt() -> None:
    subject = admit(CLOSED, bearer("sk-red"))
    other = Identity([KeyList("red", ("sk-red",))], b"t" * 32)
    assert admit(other, bearer("sk-red")).scope != subject.scope
    assert "sk-red" not in f"{subject!r} {CLOSED!r} {KeyList('red', ('sk-red',))!r}"


@pytest.mark.parametrize(
    ("headers", "hint"),
    [
        ([("x-session-id", "s"), ("x-session-affinity", "a")], "s"),
        ([("x-session-affinity", "a"), ("session-id", "i")], "a"),
        ([("session-id", "i"), ("thread-id", "t")], "t"),
        ([("session-id", "i")], "i"),
        ([("x-session-id", ""), ("session-id", "i")], "i"),
        ([("x-session-id", "x" * 1000)], "x" * 256),
        ([], ""),
    ],
)
def test_a_session_may_be_named_by_a_header(headers: list[tuple[str, str]], hint: str) -> None:
    assert OPEN.admit(headers, 0.0).session_hint == hint
    assert CLOSED.admit([*headers, bearer("sk-red")], 0.0).session_hint == hint
