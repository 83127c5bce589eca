from pathlib import Path

import pytest

from proxy.app import factories
from proxy.planning.keep_alive import RefreshTerms
from proxy.settings import ConfigError, Environment, Settings, load


def settings(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "config.yaml"
    path.write_text(f"stratiform:\n{text}")
    return load(path, "http://localhost:9", Environment({}))


def test_keep_alive_is_off_unless_it_is_turned_on(tmp_path: Path) -> None:
    assert factories.keep_alive_terms(settings(tmp_path, "  port: 1\n")) is None
    assert factories.keep_alive_terms(settings(tmp_path, "  keep_alive: {usd_per_day: 3}\n")) is None


def test_keep_alive_has_defaults(tmp_path: Path) -> None:
    assert factories.keep_alive_terms(settings(tmp_path, "  keep_alive: {enabled: true}\n")) == RefreshTerms()


def test_keep_alive_follows_its_settings(tmp_path: Path) -> None:
    text = (
        "  keep_alive: {enabled: true, usd_per_day: 3, teams: {a: 8}, own_keys: true, max_sessions: 9, max_mib: 0.5}\n"
    )
    terms = factories.keep_alive_terms(settings(tmp_path, text))
    assert terms == RefreshTerms(3.0, {"a": 8.0}, own_keys=True, max_sessions=9, max_bytes=1 << 19)


@pytest.mark.parametrize(
    "text",
    ["  keep_alive: {enabled: true, usd_per_day: -1}\n", "  keep_alive: {enabled: true, surprise: 1}\n",
     "  clock: header\n  keep_alive: {enabled: true}\n"],
)  # fmt: skip
def test_wrong_settings_of_keep_alive_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="keep_alive"):
        settings(tmp_path, text)
