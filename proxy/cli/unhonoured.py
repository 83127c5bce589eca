"""What a configuration asks for and does not get here: keys of LiteLLM that are not honoured, and API keys that have
expired."""

from collections.abc import Iterator

from proxy.app import factories
from proxy.cli.exposure import no_price
from proxy.deployments import deployment_of
from proxy.ports import Transport
from proxy.settings import IGNORE_FLAG, ConfigError, Effect, Settings, Unused, unused_on_http

IGNORE_HELP = "accept the file even if it restricts clients in ways that this proxy does not enforce"


def not_honoured(settings: Settings) -> list[Unused]:
    """What changes who may do what, or what is sent. Restrictions come first."""
    found = [*settings.unused, *_on_http(settings)]
    told = (Effect.RESTRICTS, Effect.CHANGES, Effect.UNKNOWN)
    return sorted((one for one in found if one.effect in told), key=lambda one: told.index(one.effect))


def refuse_unsupported(settings: Settings) -> None:
    """Refuse a configuration that relies on a restriction which this proxy does not enforce. Raises ConfigError."""
    if problems := list(unsupported(settings)):
        raise ConfigError(problems)


def unsupported(settings: Settings) -> Iterator[str]:
    """The restrictions of the file that this proxy does not enforce."""
    for one in settings.unused:
        if one.effect is Effect.RESTRICTS:
            yield f"{one} (to start without it: {IGNORE_FLAG})"


def expired_keys(settings: Settings, now: float) -> Iterator[str]:
    """The keys of the file that have expired."""
    for place, team in enumerate(settings.stratiform.teams):
        for index, key in enumerate(team.keys):
            if key.expires_at is not None and key.expires_at <= now:
                yield f"stratiform.teams[{place}].keys[{index}].expires: has passed: the key is refused; remove it"


def _on_http(settings: Settings) -> Iterator[Unused]:
    lines = {entry.line: entry for entry in factories.entries_with(settings)[0]}
    for index, given in enumerate(settings.models):
        if deployment_of(lines[index], no_price).transport is Transport.HTTP:
            yield from unused_on_http(given, f"model_list[{index}]")
