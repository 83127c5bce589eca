"""Who a request comes from: its key, the team of the key, and what it says about its session."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from proxy.core.modes import Mode
from proxy.errors import Unauthorized
from proxy.ports import Headers, Subject

DEFAULT_TEAM = "default"

# As clients of the OpenAI, Anthropic and Azure SDKs send their key.
KEY_HEADERS = ("authorization", "x-api-key", "api-key")
# The closest to one conversation first. opencode and kilo: x-session-affinity and x-session-id; Codex: thread-id
# within session-id.
_SESSION_HEADERS = ("x-session-id", "x-session-affinity", "thread-id", "session-id")
_MAX_HINT_CHARS = 256


@dataclass(frozen=True, slots=True)
class KeyList:
    """The keys of one team, and the highest mode that they may ask for."""

    team: str
    keys: tuple[str, ...] = field(repr=False)
    mode: Mode = Mode.TIER


class Identity:
    """Knows keys by their digest only.

    Looking a digest up in a dict takes time that depends on the digests, not on the keys: the hash is keyed with a
    secret of this process, so what a caller learns from the time tells nothing about a key that they do not have.
    With no keys at all every key is accepted, and only tells clients apart.
    """

    def __init__(self, keys: Iterable[KeyList], salt: bytes) -> None:
        self._salt = salt[:64]
        self._known: Mapping[str, tuple[str, Mode]] = {
            self._digest(key): (entry.team, entry.mode) for entry in keys for key in entry.keys
        }

    def __repr__(self) -> str:
        return f"Identity({len(self._known)} keys)"

    def admit(self, headers: Headers, now: float) -> Subject:
        """Who this is. Raises Unauthorized where keys are configured and none of them was sent."""
        sent = {name.lower(): value for name, value in headers}
        hint = next((sent[name][:_MAX_HINT_CHARS] for name in _SESSION_HEADERS if sent.get(name)), "")
        keys = [_bare(sent[name]) for name in KEY_HEADERS if sent.get(name)]
        if not self._known:
            return Subject(scope=self._digest(keys[0] if keys else ""), session_hint=hint)
        for key in keys:
            digest = self._digest(key)
            if digest in self._known:
                team, mode = self._known[digest]
                return Subject(scope=digest, team=team, session_hint=hint, mode=mode, virtual=True)
        if not keys:
            raise Unauthorized("No API key: send one of this proxy's keys as `Authorization: Bearer KEY`.")
        raise Unauthorized("Incorrect API key: this proxy does not know the key that was sent.")

    def _digest(self, key: str) -> str:
        return hashlib.blake2b(key.encode("utf-8", "surrogateescape"), digest_size=16, key=self._salt).hexdigest()


def _bare(value: str) -> str:
    """The key without its scheme."""
    scheme, _, rest = value.strip().partition(" ")
    return rest.strip() if scheme.lower() == "bearer" else value.strip()
