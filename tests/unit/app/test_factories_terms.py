"""What refreshes and compactions may cost, and when they happen, as the settings say."""

from pathlib import Path

import pytest

from proxy.app import factories
from proxy.app.settings import ConfigError, Environment, Settings, load
from proxy.context.history.compaction import CompactionTerms
from proxy.services.own_exchanges import DailyTerms, RefreshTerms


def settings(tmp_path: Path, section: str) -> Settings:
    path = tmp_path / "config.yaml"
    path.write_text(f"stratiform: {{{section}}}\n")
    return load(path, "http://localhost:9", Environment({}))


def compaction(terms: str) -> str:
    return f"structured: {{compaction: {{{terms}}}}}"


@pytest.mark.parametrize(
    ("section", "terms"),
    [
        ("", None),
        ("keep_alive: {usd_per_day: 3}", None),
        ("keep_alive: {enabled: true}", RefreshTerms()),
        (
            "keep_alive: {enabled: true, usd_per_day: 3, teams: {a: 8}, own_keys: true, max_sessions: 9, max_mib: 0.5}",
            RefreshTerms(3.0, {"a": 8.0}, own_keys=True, max_sessions=9, max_bytes=1 << 19),
        ),
    ],
)
def test_keep_alive_follows_its_settings(tmp_path: Path, section: str, terms: RefreshTerms | None) -> None:
    assert factories.keep_alive_terms(settings(tmp_path, section)) == terms


@pytest.mark.parametrize(
    ("given", "terms", "costs"),
    [
        ("usd_per_day: 3", CompactionTerms(), None),
        ("allowed: true", CompactionTerms(), DailyTerms()),
        (
            "allowed: true, min_history_tokens: 9000, verbatim_tokens: 0, summary_tokens: 90, keep_exchanges: 1,"
            " usd_per_day: 3, own_keys: true",
            CompactionTerms(9_000, 0, 90, 1),
            DailyTerms(3.0, own_keys=True),
        ),
    ],
)
def test_compaction_follows_its_settings(
    tmp_path: Path, given: str, terms: CompactionTerms, costs: DailyTerms | None
) -> None:
    found = settings(tmp_path, compaction(given))
    assert (factories.assembly_options(found).compaction, factories.compaction_costs(found)) == (terms, costs)


@pytest.mark.parametrize(
    "section",
    [
        "keep_alive: {enabled: true, usd_per_day: -1}",
        "keep_alive: {enabled: true, surprise: 1}",
        "clock: header, keep_alive: {enabled: true}",
        *map(
            compaction,
            ("min_history_tokens: 999", "verbatim_tokens: -1", "summary_tokens: 49", "summary_tokens: 2001",
             "keep_exchanges: 0", "usd_per_day: -1", "allowed: maybe", "surprise: 1"),
        ),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused(tmp_path: Path, section: str) -> None:
    with pytest.raises(ConfigError, match="keep_alive|compaction"):
        settings(tmp_path, section)
