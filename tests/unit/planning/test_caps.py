"""Each team has a cap of its own, which begins anew each day."""

from proxy.planning.caps import Caps
from proxy.planning.keep_alive import RefreshTerms


def test_a_cap_begins_anew_each_day() -> None:
    caps = Caps(RefreshTerms(usd_per_day=1e-6, teams={"rich": 1.0}))
    assert caps.take("poor", 900, 10.0)
    assert not caps.take("poor", 200, 20.0)
    caps.settle("poor", 900, 100)
    assert caps.take("poor", 200, 30.0)
    assert caps.take("rich", 10**6, 30.0)
    assert not caps.take("poor", 900, 40.0)
    assert caps.take("poor", 900, 86_401.0)
