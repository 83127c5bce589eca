import re

from proxy.core.reasons import Reason


def test_reasons_can_be_metric_labels() -> None:
    assert len(set(Reason)) == len(list(Reason))
    for reason in Reason:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", reason.value), reason
