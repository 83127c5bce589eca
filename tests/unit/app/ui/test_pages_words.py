"""Figures and names as people read them."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.app.ui.pages import culprits, cut, moment, percent, piece, sentence, short, times, usd


def test_amounts_are_told_to_the_cent_and_smaller_ones_in_two_digits() -> None:
    told = {4.1: "$4.10", 0.0: "$0.00", 1234.567: "$1,234.57", -0.5: "−$0.50", 0.0082: "$0.0082", 1e-9: "<$0.0001"}
    assert {amount: usd(amount) for amount in told} == told
    assert usd(None) == "unlimited"
    assert [short(count) for count in (0, 999, 1500, 2_340_000, 5e9)] == ["0", "999", "1.5k", "2.34M", "5G"]
    assert [times(count) for count in (1, 2, 14)] == ["once", "twice", "14 times"]
    assert percent(0.4089) == "40.9%"
    assert [moment(at) for at in (None, 0.0, 1e300)] == ["", "1970-01-01 00:00:00", "unknown"]


@given(st.text(), st.integers(2, 80))
def test_a_cut_name_is_short_and_prints(name: str, most: int) -> None:
    shown = cut(name, most)
    assert len(shown) <= most
    assert shown.isprintable()


def test_a_piece_is_named_as_its_client_names_it() -> None:
    named = {
        "aider:files/file:src/app.py": "src/app.py",
        "turn:user": "a turn of the user",
        "documents:47edcaad09a1": "documents (47ed)",
        "document:section:1/source:docs/invoices.md:a3818ca4a391": "docs/invoices.md",
        'document:section="1" source="seasons.md":339fb89615d1': "seasons.md",
        "system/volatile:clock#0": "a line that changes",
        "aider:map/map": "aider:map/map",
    }
    assert {key: piece(key) for key in named} == named


def test_the_sentence_says_what_a_session_came_to() -> None:
    broke = {"kind": "changed", "culprit": "f/file:src/app.py", "lost_tokens": 9, "usd": 0.1}
    requests = [{"break": broke}] * 8 + [{"break": None}, {"break": {**broke, "kind": "expired", "culprit": ""}}]
    session = {"requests": 60, "cost_usd": 4.1, "saved_usd": 5.6}
    assert (
        sentence(session, requests)
        == "60 requests, $4.10 instead of $9.70; f/file:src/app.py changed 8 times and cost $0.80."
    )
    assert sentence({"requests": 1, "cost_usd": 0.5, "saved_usd": 0.0}, []) == "1 request, $0.50."
    told = sentence({"requests": 1, "cost_usd": 0.5, "saved_usd": 0.0}, requests[-1:])
    assert told == "1 request, $0.50; the cache broke once (expired) and that cost $0.10."
    assert [one["breaks"] for one in culprits(requests)] == [8, 1]
