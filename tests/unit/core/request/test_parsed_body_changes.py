"""The changes of a body: what they name is changed, and every other byte stays."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.request.parsed_body import BodyChanges
from proxy.core.request.reader import RequestReader
from proxy.core.request.tokens import bytes_over_four

MEMBERS: list[dict[str, bytes | None]] = [{}, {"model": b'"n"'}, {"top_p": None, "user": b'"u"'}]
TEXTS = st.lists(st.text(max_size=4), min_size=1, max_size=5)


def changed(body: bytes, members: dict[str, bytes | None], new: dict[int, Any]) -> bytes:
    reader = RequestReader(bytes_over_four, [], 1 << 20)
    parsed = reader.parse(body)
    reader.read(parsed)
    return BodyChanges(parsed, members, {index: json.dumps(one).encode() for index, one in new.items()}).body()


@pytest.mark.parametrize("front", ["", '"seed" : 1 , "seed" : 1 , '], ids=["places known", "a name stands twice"])
@given(TEXTS, st.data())
def test_only_what_is_named_changes(front: str, texts: list[str], data: st.DataObject) -> None:
    messages = [{"role": "user", "content": text} for text in texts]
    body = f'{{ {front}"model" : "m" , "messages" : {json.dumps(messages)}, "top_p" : 1.0 }}'.encode()
    indices = data.draw(st.sets(st.integers(0, len(texts) - 1)))
    new = {index: {"role": "user", "content": f"new {index}"} for index in indices}
    members: dict[str, bytes | None] = data.draw(
        st.sampled_from([{}, {"model": b'"n"'}, {"top_p": None, "user": b'"u"'}])
    )
    found = changed(body, members, new)
    expected = {**json.loads(body), "messages": [new.get(i, one) for i, one in enumerate(messages)]}
    for name, raw in members.items():
        expected.pop(name, None)
        expected |= {} if raw is None else {name: json.loads(raw)}
    assert json.loads(found) == expected
    if not members and not new:
        assert found == body
    elif not members and not front:
        at = body.index(json.dumps(messages).encode())
        assert found[:at] == body[:at]
        assert found.endswith(b', "top_p" : 1.0 }')
