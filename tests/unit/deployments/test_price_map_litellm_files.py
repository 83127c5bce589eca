"""Files of the installed litellm are found without its import."""

import pytest

from proxy.deployments import price_map as litellm_files
from proxy.deployments.price_map import bundled_price_file, litellm_file
from proxy.deployments.table import provider_names


def test_a_file_is_found_where_it_is() -> None:
    found = litellm_file("types/utils.py")
    assert found is not None
    assert found.parts[-3:] == ("litellm", "types", "utils.py")
    assert litellm_file("types/nothing.py") is None


def test_without_litellm_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litellm_files, "find_spec", lambda name: None)
    assert bundled_price_file() is None
    assert provider_names() == frozenset()
