"""Access to the pages: everybody who has the master key gets in, by a signed cookie that lives for a while.

A page on another site can make a browser send requests here. If the owner of that site's name lets the name point at
this machine, the browser takes that page for our own site (DNS rebinding). So a request must name one of the hosts by
which the proxy is reached. The cookie is sent only with requests of our own pages. A form carries a token that is
derived from the cookie.
"""

import hmac
import secrets
from collections.abc import Callable, Collection, Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from proxy.kit.errors import ProxyError
from proxy.kit.value import dataclass, field
from proxy.teams.authentication import Identity

COOKIE: Final = "stratiform_ui"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_FORWARDED = frozenset({"forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"})


class Refused(ProxyError, status=403, type="invalid_request_error", code="forbidden"):
    """A request that the pages do not serve for any sender."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A visitor who may look at the pages. ``token`` belongs into the visitor's forms; if it is empty, the visitor may
    change nothing. ``until`` is the end of the visit, in unix seconds."""

    token: str = ""
    until: float = float("inf")

    def sent_form(self, fields: Mapping[str, str]) -> bool:
        """Whether a form comes from a page of this visit."""
        return bool(self.token) and hmac.compare_digest(fields.get("token", "").encode(), self.token.encode())


@dataclass(frozen=True, slots=True)
class Gate:
    """Lets requests in. ``host`` is the address that the proxy listens on. ``hosts`` are other names by which it is
    reached. ``life_s`` is how long a cookie lives."""

    identity: Identity
    now: Callable[[], float]
    host: str
    hosts: Collection[str] = field(default_factory=tuple)
    life_s: float = 3600.0

    def check_host(self, headers: Mapping[str, str]) -> None:
        """Raises Refused for a request that does not name one of the proxy's hosts, or comes from another site."""
        host = headers.get("host", "").lower()
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        is_named = bool(name) and name in {self.host.lower(), *(host.lower() for host in self.hosts)}
        # A name can be made to point anywhere; an address cannot. The network decides which addresses lead here.
        leads_here = name in _LOOPBACK or (self.host in ("0.0.0.0", "::") and _is_address(name))
        if not (is_named or leads_here):
            raise Refused(
                "This page is not served under that name. If the name is right, list it in stratiform.ui.hosts."
            )
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host:
            raise Refused("This request comes from a page of another site.")

    def visit(self, headers: Mapping[str, str], peer: str) -> Visit | None:
        """The visit of a known visitor, else None. Raises Refused if there is no master key and the request does not
        come from this machine."""
        if self.identity.has_master:
            return self._of_cookie(headers.get("cookie", ""))
        if not is_loopback(self.host) or not is_loopback(peer) or _FORWARDED & headers.keys():
            raise Refused("Without a master key these pages are shown on the proxy's own machine alone.")
        return Visit()

    def enter(self) -> str:
        """The value of a new cookie."""
        until = int(self.now() + self.life_s)
        text = f"{until}.{secrets.token_hex(16)}"
        return f"{text}.{self.identity.signed(f'ui.{text}')}"

    def _of_cookie(self, cookies: str) -> Visit | None:
        for pair in cookies.split(";"):
            name, _, value = pair.strip().partition("=")
            text, _, signature = value.rpartition(".")
            until = text.partition(".")[0]
            if name != COOKIE or not until.isdecimal() or len(value) > 256:
                continue
            is_ours = hmac.compare_digest(signature.encode(), self.identity.signed(f"ui.{text}").encode())
            if is_ours and float(until) > self.now():
                return Visit(self.identity.signed(f"form.{text}"), float(until))
        return None


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(name: str) -> bool:
    """Whether only this machine reaches an address. A text that is not an address counts as reachable from outside,
    except ``localhost``."""
    if not _is_address(name):
        return name == "localhost"
    found = ip_address(name)
    return bool((getattr(found, "ipv4_mapped", None) or found).is_loopback)
