"""Reads the files only once that each proxy and each client reads at its start: the large ones, and those of the many
installed packages. Tests start hundreds of both in one process, and only the first of them reads the files."""

import os
import ssl
from collections.abc import Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import certifi

from proxy.models import deployments
from proxy.protocol.prices import Entry, PriceMap

_new_context = ssl.create_default_context
_entry_points_of = metadata.PathDistribution.entry_points.fget  # type: ignore[attr-defined]


def load_price_map(overrides: Mapping[str, Entry] | None = None) -> PriceMap:
    """Do the same as ``proxy.models.deployments.load_price_map``. All price maps share their entries."""
    return PriceMap(_entries(), overrides)


@lru_cache
def _entries() -> Mapping[str, Entry]:
    return deployments.load_price_map()._entries


@lru_cache
def provider_names() -> frozenset[str]:
    """Do the same as ``proxy.models.deployments.provider_names``."""
    return deployments.provider_names()


def entry_points(package: metadata.PathDistribution) -> metadata.EntryPoints:
    """Do the same as the property ``entry_points`` of an installed package."""
    return _entry_points_at(package._path)  # type: ignore[arg-type]


@lru_cache(1000)
def _entry_points_at(folder: Path) -> metadata.EntryPoints:
    found: metadata.EntryPoints = _entry_points_of(metadata.PathDistribution(folder))
    return found


def create_default_context(*given: Any, cafile: str | None = None, **options: Any) -> ssl.SSLContext:
    """Do the same as ``ssl.create_default_context``, but give one context to all clients that ask for the certificates
    of this machine. Clients do not change it."""
    of_machine = cafile is not None and cafile in (os.environ.get("SSL_CERT_FILE"), certifi.where())
    if given or options or not of_machine:
        return _new_context(*given, cafile=cafile, **options)
    return _shared_context(cafile)


@lru_cache
def _shared_context(cafile: str | None) -> ssl.SSLContext:
    return _new_context(cafile=cafile)
