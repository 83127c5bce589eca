"""The whole proxy, from a configuration, on a real socket. It is put together as ``stratiform serve`` does it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import yaml
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.app import composition
from proxy.app.settings import Environment, Settings, load
from proxy.app.web import create_app
from proxy.kit.clock import Readings
from proxy.protocol.request.tokens import bytes_over_four
from tests.doubles import serving


class Whole:
    """An app that is built in the event loop that serves it."""

    def __init__(self, settings: Settings, readings: Readings | None = None) -> None:
        self._settings = settings
        self._readings = readings
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            built = await composition.build(self._settings, encode=bytes_over_four, readings=self._readings)
            self._app = create_app(built.parts)
        await self._app(scope, receive, send)


def settings_of(folder: Path, text: str) -> Settings:
    """A configuration in a folder of its own."""
    path = folder / "config.yaml"
    path.write_text(text)
    return load(path, environment=Environment({"HOME": str(folder)}))


@contextmanager
def whole(folder: Path, text: str, readings: Readings | None = None) -> Iterator[str]:
    """The address of a proxy with this configuration, on a machine with these clocks."""
    with serving(Whole(settings_of(folder, text), readings)) as url:
        yield url


@contextmanager
def whole_of(folder: Path, config: Mapping[str, object]) -> Iterator[str]:
    """The same for a configuration that is an object. Each proxy has its own memory, as workers and hosts have."""
    folder.mkdir(exist_ok=True)
    with whole(folder, yaml.safe_dump(dict(config))) as url:
        yield url
