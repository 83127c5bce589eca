"""What contract tests share."""

import asyncio
import warnings

import pytest

from proxy.upstream.litellm_ import LitellmUpstream


@pytest.fixture(scope="session")
def litellm_imported() -> None:
    """One import of litellm for all tests that call it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asyncio.run(LitellmUpstream().warm())
