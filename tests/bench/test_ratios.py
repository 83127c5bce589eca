"""No request becomes dearer by a tenth, compared with the committed table of ``python -m tests.bench.ratios``."""

import pytest

from tests.bench import ratios, servers

_ATTEMPTS = 3


def test_a_case_is_worse_where_it_grew_by_more_than_a_tenth_or_only_one_table_has_it() -> None:
    before = {"small": 2.0, "large": 3.0, "steady": 4.0, "as steady": 4.0, "gone": 1.0}
    found = {"small": 2.19, "large": 3.31, "steady": 4.0, "as steady": 4.0, "new": 1.0}
    assert ratios.worse(found, before) == ["gone", "large", "new"]


def test_growth_of_all_cases_is_the_machines_up_to_a_bound() -> None:
    before = dict.fromkeys("abcde", 2.0)
    assert ratios.worse(dict.fromkeys("abcde", 2.3), before) == []
    assert ratios.worse(dict.fromkeys("abcde", 2.3) | {"e": 2.6}, before) == ["e"]
    assert ratios.worse(dict.fromkeys("abcde", 2.6), before) == [*"abcde"]


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.skipif(not servers.IS_SUPPORTED, reason="CPU times are read from /proc")
def test_no_request_costs_a_tenth_more_than_the_committed_table_says() -> None:
    machine, before = ratios.committed()
    if machine != ratios.machine():
        pytest.skip(f"the table was made on {machine}: `python -m tests.bench.ratios --write` makes one here")
    best: dict[str, float] = {}
    for _ in range(_ATTEMPTS):
        found = ratios.measured(seconds=10.0)
        best = {key: min(ratio, best.get(key, ratio)) for key, ratio in found.items()}
        if not ratios.worse(best, before):
            break
    assert not ratios.worse(best, before), best
