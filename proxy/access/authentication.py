"""Identifies the sender of a request: its key, the team of the key, and its session hint.

Keys are known by their SHA-256 digest. The time of a digest lookup reveals nothing useful about another key: a caller
who knew the beginning of a digest would still have to find a key for it.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import replace

from proxy.access.directory import CLIENT_KEYS_TEAM, DEFAULT_TEAM, MASTER_ID, Directory, Snapshot
from proxy.access.virtual_keys import digest_of
from proxy.core.modes import Mode
from proxy.core.secrets.credentials import KEY_PREFIX, OWN_KEY_HEADER, client_key, sent_keys
from proxy.errors import NotReady, Unauthorized
from proxy.ports import Headers, Principal, RateLimit
from proxy.storage.port import KeyRecord, TeamRecord

# The header that identifies one conversation most closely comes first. opencode and kilo send x-session-affinity and
# x-session-id. Codex sends thread-id for a thread within the session of session-id.
_SESSION_HEADERS = ("x-session-id", "x-session-affinity", "thread-id", "session-id")
_MAX_HINT_CHARS = 256


class Identity:
    """Identifies the sender of a request. Because of the ``salt``, nobody else can compute the scopes of clients. State
    that outlives the process, or is shared, needs the same salt every time.

    If the configuration names no key and no team, and no key was made, every key is accepted, and keys only tell
    clients apart. This ends as soon as there is a key, until the process is started again. So deleting the last key
    does not give everybody access.
    """

    def __init__(self, directory: Directory, salt: bytes) -> None:
        self._directory = directory
        self._salt = salt[:64]
        self._is_open = directory.declared.is_empty
        self._seen: Snapshot | None = None
        self._records: Mapping[str, KeyRecord] = {}
        self._met: dict[str, Principal] = {}

    def admit(self, headers: Headers, now: float) -> Principal:
        """The sender of a request. Raises Unauthorized if keys are needed and no valid key was sent."""
        self._follow()
        sent = {name.lower(): value for name, value in headers}
        hint = session_hint(sent)
        keys = sent_keys(headers)
        if self._is_open:
            self._check_loaded()
            return Principal(scope=self._scope("", keys[0] if keys else ""), session_hint=hint)
        own = sent.get(OWN_KEY_HEADER, "").strip()
        for key in [own] if own else keys:
            if (found := self._find(key)) is not None:
                record, team = found
                _check_good(record, now)
                if (principal := self._met.get(record.id)) is None:
                    principal = _principal(self._scope(team.name, record.id), team, record)
                    self._met[record.id] = principal
                brings_key = bool(own) and team.forwards_keys and self._brings_theirs(headers)
                return replace(
                    principal,
                    session_hint=hint,
                    virtual=not brings_key,
                    forwards_key=brings_key,
                    is_confined=principal.is_confined and not brings_key,
                )
        return self._stranger(own, keys, client_key(headers), hint)

    def is_master(self, headers: Headers) -> bool:
        """Whether the master key was sent. False if there is no master key."""
        master = self._directory.declared.master_digest
        return bool(master) and any([hmac.compare_digest(digest_of(key), master) for key in sent_keys(headers)])

    @property
    def has_master(self) -> bool:
        return bool(self._directory.declared.master_digest)

    def signed(self, text: str) -> str:
        """A signature of a text. Every proxy with this master key makes the same signature, and nobody else can make
        it. Empty if there is no master key."""
        master = self._directory.declared.master_digest
        return hmac.digest(master.encode(), text.encode(), "sha256").hex() if master else ""

    def _brings_theirs(self, headers: Headers) -> bool:
        """Whether the other key, besides the proxy's own, is the provider's. If it were a second key of the proxy, it
        would be disclosed to the provider."""
        return client_key(headers) is not None and not any(
            key.startswith(KEY_PREFIX) or self._find(key) is not None for key in sent_keys(headers)
        )

    def _stranger(self, own: str, keys: Sequence[str], theirs: str | None, hint: str) -> Principal:
        """The principal of a key that is not known here. If the configuration forwards such keys, it counts as the
        provider's key. Raises Unauthorized, NotReady."""
        looks_ours = bool(own) or any(key.startswith(KEY_PREFIX) for key in keys)
        if looks_ours:
            self._check_loaded()
        if self._directory.declared.forwards_unknown and theirs is not None and not looks_ours:
            team = self._directory.snapshot.teams[CLIENT_KEYS_TEAM]
            principal = _principal(self._scope(CLIENT_KEYS_TEAM, theirs), team, None)
            return replace(principal, session_hint=hint, virtual=False, forwards_key=True)
        if not keys and not own:
            raise Unauthorized("No API key: send one of this proxy's keys as `Authorization: Bearer KEY`.")
        self._check_loaded()
        raise Unauthorized("Incorrect API key: this proxy does not know the key that was sent.")

    def _check_loaded(self) -> None:
        if not self._directory.is_loaded:
            raise NotReady("The proxy's keys have not been read yet: its store does not answer.")

    def _find(self, key: str) -> tuple[KeyRecord, TeamRecord] | None:
        """The record and the team of a key; None for a key that is not known here."""
        if (record := self._records.get(digest_of(key))) is None:
            return None
        team = self._directory.snapshot.teams.get(record.team)
        return (record, team) if team is not None else None

    def _follow(self) -> None:
        """Rebuild the index of keys if the directory has changed."""
        snapshot = self._directory.snapshot
        if snapshot is self._seen:
            return
        records = list(snapshot.keys.values())
        if master := self._directory.declared.master_digest:
            records.append(KeyRecord(id=MASTER_ID, digest=master, team=DEFAULT_TEAM))
        self._records = {record.digest: record for record in records}
        self._met = {}
        self._is_open = self._is_open and self._directory.declared.is_empty and not snapshot.keys
        self._seen = snapshot

    def _scope(self, team: str, key: str) -> str:
        text = f"{team}\0{key}".encode("utf-8", "surrogateescape")
        return hashlib.blake2b(text, digest_size=16, key=self._salt).hexdigest()


def session_hint(headers: Mapping[str, str]) -> str:
    """The session id in a client's headers (by their names in lower case); empty if there is none."""
    return next((headers[name][:_MAX_HINT_CHARS] for name in _SESSION_HEADERS if headers.get(name)), "")


def _principal(scope: str, team: TeamRecord, key: KeyRecord | None) -> Principal:
    """The principal of a key, with the narrower of the rights of the team and of the key."""
    parts: tuple[KeyRecord | TeamRecord, ...] = (team,) if key is None else (key, team)
    rates = [
        RateLimit(key.id if key is not None and part is key else "", part.requests_per_minute, part.tokens_per_minute)
        for part in parts
        if part.requests_per_minute is not None or part.tokens_per_minute is not None
    ]
    return Principal(
        scope=scope,
        team=team.name,
        mode=min((_mode(part.mode) for part in parts if part.mode), default=Mode.TIER),
        virtual=True,
        key_id="" if key is None else key.id,
        user="" if key is None else key.user,
        models=tuple(tuple(part.models) for part in parts if part.models),
        rates=tuple(rates),
        is_confined=key is not None and key.id != MASTER_ID and "*" not in team.paths,
        paths=tuple(team.paths),
    )


def _mode(text: str) -> Mode:
    """The mode of that name. A store that is shared with a later version may hold a mode that is not known here. Then
    requests pass through unchanged."""
    try:
        return Mode.parse(text)
    except ValueError:
        return Mode.PASSTHROUGH


def _check_good(key: KeyRecord, now: float) -> None:
    """Raises Unauthorized for a revoked or expired key. Only a caller who has the key gets this error."""
    if key.revoked_at is not None:
        raise Unauthorized("This API key has been revoked.")
    if key.expires_at is not None and now >= key.expires_at:
        raise Unauthorized("This API key has expired.")
