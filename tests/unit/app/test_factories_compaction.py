from pathlib import Path

import pytest

from proxy.app import factories
from proxy.core.structured.history.compaction import CompactionTerms
from proxy.planning.own_exchanges import DailyTerms
from proxy.settings import ConfigError, Environment, Settings, load


def settings(tmp_path: Path, terms: str, more: str = "") -> Settings:
    path = tmp_path / "config.yaml"
    path.write_text(f"stratiform:\n  structured: {{compaction: {{{terms}}}}}\n{more}")
    return load(path, "http://localhost:9", Environment({}))


def test_no_conversation_is_compacted_unless_that_is_allowed(tmp_path: Path) -> None:
    assert factories.compactor_terms(settings(tmp_path, "usd_per_day: 3")) is None


def test_the_defaults_are_those_of_the_rules(tmp_path: Path) -> None:
    found = settings(tmp_path, "allowed: true")
    assert factories.compactor_terms(found) == DailyTerms()
    assert factories.compaction_terms(found) == CompactionTerms()


def test_compaction_follows_its_settings(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        "allowed: true, min_history_tokens: 9000, verbatim_tokens: 0, summary_tokens: 90, keep_exchanges: 1,"
        " usd_per_day: 3, own_keys: true",
    )
    assert factories.compactor_terms(found) == DailyTerms(3.0, own_keys=True)
    assert factories.compaction_terms(found) == CompactionTerms(9_000, 0, 90, 1)


@pytest.mark.parametrize(
    "terms",
    ["min_history_tokens: 999", "verbatim_tokens: -1", "summary_tokens: 49", "summary_tokens: 2001",
     "keep_exchanges: 0", "usd_per_day: -1", "allowed: maybe", "surprise: 1"],
)  # fmt: skip
def test_wrong_settings_of_compaction_are_refused(tmp_path: Path, terms: str) -> None:
    with pytest.raises(ConfigError, match="compaction"):
        settings(tmp_path, terms)
