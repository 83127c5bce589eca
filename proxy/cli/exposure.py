"""Finds out whether strangers could use the provider's keys. A proxy that accepts any key and listens beyond this
machine gives them away."""

from collections.abc import Iterator
from ipaddress import IPv6Address, ip_address

from proxy.app import factories
from proxy.deployments import deployment_of
from proxy.engine.headers import uses_operators_key
from proxy.ports import Deployment, Transport
from proxy.settings import ConfigError, Settings

# What stands for a key where a server needs none.
_PLACEHOLDERS = frozenset({"none", "null", "empty", "dummy", "no-key", "not-needed", "not_needed", "x", "-"})


def refuse_exposed(settings: Settings, address: str, *, is_open: bool) -> None:
    """Refuse to serve where anybody who reaches this address could use the operator's keys.

    ``address`` is the one that the socket is bound to. ``is_open`` says that any key is accepted. Raises ConfigError.
    """
    if is_open and not settings.stratiform.open_to_network and not is_loopback(address):
        names = list(provider_keys(settings))
        if names:
            raise ConfigError([f"stratiform.host: {_problem(address, names)}"])


def provider_keys(settings: Settings) -> Iterator[str]:
    """The names of the models that are served with a credential of the operator's. With litellm the credential may come
    from the environment, or from the role of the machine."""
    for entry in factories.entries_with(settings)[0]:
        if _is_operators(deployment_of(entry, no_price)):
            yield entry.name


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches the address. A text that is no IP address counts as reachable from outside."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return (mapped or found).is_loopback


def _is_operators(deployment: Deployment) -> bool:
    match deployment.transport:
        case Transport.EMBEDDED:
            return False
        case Transport.LITELLM:
            return True
        case Transport.HTTP:
            key = (deployment.api_key or "").strip().lower()
            has_key = uses_operators_key(deployment) and key not in _PLACEHOLDERS
            return has_key or "@" in deployment.base_url.partition("://")[2].partition("/")[0]


def _problem(address: str, names: list[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:3]) + (", ..." if len(names) > 3 else "")
    return (
        f"listens on {address or 'every address'}, beyond this machine, and accepts any key, while {shown} "
        "would be served with the operator's own key: set general_settings.master_key or stratiform.teams, listen on "
        "127.0.0.1, or say stratiform.open_to_network: true"
    )


def no_price(deployment: Deployment) -> None:
    """A source of prices for questions that have nothing to do with prices."""
