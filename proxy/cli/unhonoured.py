"""What of a configuration does not hold here: LiteLLM's keys that are not honoured, and keys whose time has passed."""

from collections.abc import Iterator

from proxy.app import factories
from proxy.deployments import deployment_of
from proxy.ports import Deployment, Transport
from proxy.settings import IGNORE_FLAG, ConfigError, Effect, Settings, Unused, unused_on_http

IGNORE_HELP = "start though the file restricts clients in ways that are not honoured here"


def not_honoured(settings: Settings) -> list[Unused]:
    """What changes who may do what, or what is sent; what restricts comes first."""
    found = [*settings.unused, *_on_http(settings)]
    told = (Effect.RESTRICTS, Effect.CHANGES, Effect.UNKNOWN)
    return sorted((one for one in found if one.effect in told), key=lambda one: told.index(one.effect))


def refuse_unsupported(settings: Settings) -> None:
    """Raises ConfigError where the configuration counts on a restriction that nobody here sees to."""
    restricting = [str(one) for one in settings.unused if one.effect is Effect.RESTRICTS]
    if restricting:
        raise ConfigError([f"{line} (to start without it: {IGNORE_FLAG})" for line in restricting])


def expired_keys(settings: Settings, now: float) -> Iterator[str]:
    """The keys of the file that nobody can use any more."""
    for place, team in enumerate(settings.stratiform.teams):
        for index, key in enumerate(team.keys):
            if key.expires_at is not None and key.expires_at <= now:
                yield f"stratiform.teams[{place}].keys[{index}].expires: has passed: the key is refused; remove it"


def _on_http(settings: Settings) -> Iterator[Unused]:
    for index, (given, entry) in enumerate(zip(settings.models, factories.entries(settings), strict=False)):
        if deployment_of(entry, _no_price).transport is Transport.HTTP:
            yield from unused_on_http(given, f"model_list[{index}]")


def _no_price(deployment: Deployment) -> None:
    return None
