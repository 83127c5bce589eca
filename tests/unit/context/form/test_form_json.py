"""The members of a section are counted, so that one which stands twice shows."""

import json

import msgspec
from hypothesis import given

from proxy.context.form import FormJson
from proxy.protocol.wire import names_within
from tests.structured_forms import forms


def pairs_of(value: object) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(pairs_of, value.values()))
    return sum(map(pairs_of, value)) if isinstance(value, list) else 0


@given(forms())
def test_every_member_counts_once(form: dict[str, object]) -> None:
    assert names_within(msgspec.json.decode(json.dumps(form), type=FormJson)) == pairs_of(form)
