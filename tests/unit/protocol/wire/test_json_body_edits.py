import json

import pytest

from proxy.protocol.request import parse_body

MESSAGES = b'"messages":[{"role":"user","content":"hi"}]'


def body(*members: bytes) -> bytes:
    return b"{" + b",".join([b'"model":"m"', *members, MESSAGES]) + b"}"


def original(raw: bytes, model: str = "m") -> bytes:
    """The request with those edits only that every mode makes."""
    parsed = parse_body(raw).chat()
    return parsed.edited(parsed.edits(model))


class TestTransport:
    def test_nothing_to_do_is_the_clients_own_bytes(self) -> None:
        raw = body(b'"temperature": 1.0')
        assert original(raw) is raw
        assert original(raw, "") is raw

    def test_the_name_at_the_upstream(self) -> None:
        raw = body()
        assert original(raw, "provider/x") == raw.replace(b'"m"', b'"provider/x"')

    @pytest.mark.parametrize(
        ("members", "options"),
        [
            ([b'"stream":true'], b'{"include_usage":true}'),
            ([b'"stream":true', b'"stream_options":null'], b'{"include_usage":true}'),
            ([b'"stream":true', b'"stream_options":{"x": 1.0}'], b'{"x":1.0,"include_usage":true}'),
            ([b'"stream":true', b'"stream_options":{"include_usage":false}'], b'{"include_usage":true}'),
        ],
    )
    def test_usage_is_asked_for_in_streams(self, members: list[bytes], options: bytes) -> None:
        assert parse_body(body(*members)).chat().edits("m") == {"stream_options": options}

    @pytest.mark.parametrize(
        "members",
        [
            [b'"stream":true', b'"stream_options":{"include_usage":true}'],
            [b'"stream":false'],
            [b'"stream":1'],
            [b'"stream":false', b'"stream_options":{"include_usage":false}'],
            [b'"stream":true', b'"stream_options":"nonsense"'],
            [],
        ],
    )
    def test_bodies_without_a_usage_request_stay_as_they_are(self, members: list[bytes]) -> None:
        raw = body(*members)
        assert original(raw) is raw

    def test_our_own_section_never_goes_upstream(self) -> None:
        assert json.loads(original(body(b'"stratiform":{"a":1}'))) == {
            "model": "m",
            "messages": [{"role": "user", "content": "hi"}],
        }
