"""Names of members as lenient servers read them."""

import pytest

from proxy.core.wire.names import folded


@pytest.mark.parametrize(
    "name", ["messages", "Messages", " messages", "mess\u200bages", "me\u017f\u017fages", "ｍessages"]
)
def test_a_name_that_a_lenient_server_takes_for_another_is_that_one(name: str) -> None:
    assert folded(name) == "messages"


def test_other_names_stay_what_they_are() -> None:
    assert folded("message_s") == "message_s"
