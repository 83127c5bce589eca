"""One proxy for all attacks that need nothing of their own."""

from collections.abc import Iterator

import pytest

from tests.security.world import World, world_of


@pytest.fixture(scope="session")
def shared_world() -> Iterator[World]:
    """A world of the usual configuration, begun once."""
    with world_of() as world:
        yield world


@pytest.fixture
def world(shared_world: World) -> World:
    """The shared world, with nothing seen and nothing logged. What was spent before stays spent."""
    shared_world.forget()
    return shared_world
