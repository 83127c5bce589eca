"""No request becomes dearer by a tenth, compared with the committed table of ``python -m tests.bench.ratios``."""

import pytest

from tests.bench import ratios, servers

_ATTEMPTS = 3


def test_a_case_is_worse_where_it_grew_by_more_than_a_tenth_or_only_one_table_has_it() -> None:
    before = {"small": 2.0, "large": 3.0, "gone": 1.0}
    assert ratios.worse({"small": 2.19, "large": 3.31, "new": 1.0}, before) == ["large", "gone", "new"]


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
