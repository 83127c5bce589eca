"""The table of features names what there is, and each feature changes something on a session that is always at hand."""

import subprocess
import sys
from functools import lru_cache

import pytest

from tests.economics.features import FEATURES, Feature
from tests.economics.measure import Job, measure
from tests.economics.sessions import sessions
from tests.patching import holder_of

each_feature = pytest.mark.parametrize("feature", FEATURES, ids=[one.name for one in FEATURES])


@lru_cache
def sent_by_all_features(session: str, rules: str) -> bytes:
    return measure(Job(session, rules)).sent


@each_feature
def test_every_feature_is_where_the_table_says(feature: Feature) -> None:
    owner, name = holder_of(feature.where)
    assert hasattr(owner, name)
    assert sessions()[feature.shown_by[0]].origin


@pytest.mark.slow
@each_feature
def test_a_session_is_sent_otherwise_without_the_feature(feature: Feature) -> None:
    assert measure(Job(*feature.shown_by, feature.name)).sent != sent_by_all_features(*feature.shown_by)


def test_every_feature_has_a_name_of_its_own() -> None:
    assert len({one.name for one in FEATURES}) == len(FEATURES)


def test_a_feature_that_is_switched_off_is_on_again_behind_the_replay() -> None:
    before = sent_by_all_features("demo-clock", "anthropic")
    off = measure(Job("demo-clock", "anthropic", FEATURES[0].name)).sent
    assert measure(Job("demo-clock", "anthropic")).sent == before != off


@pytest.mark.slow
def test_switching_a_feature_off_does_not_import_litellm_which_would_fetch_its_price_map() -> None:
    words = "import sys, tests.patching; tests.patching.import_all(); sys.exit('litellm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", words], check=False).returncode == 0
