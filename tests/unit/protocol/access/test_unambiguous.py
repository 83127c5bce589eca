"""Bodies in which two servers could find different things."""

import json
from itertools import product

import pytest

from proxy.kit.errors import InvalidRequest
from proxy.protocol.access import unambiguous
from proxy.protocol.request import RequestFields, head_of
from tests.examples import for_every

# What makes a body one that is not taken apart, and none of them hides a name.
ODD = (b'"x":NaN', b'"x":-Infinity', b'"x":"\\ud800"', b'"x":[{"y":"\\udc00"}]', b'"\\ud800":1', b'"x":1')


def read(body: bytes) -> RequestFields:
    return unambiguous(head_of(body))


@for_every(
    product(
        ODD,
        [
            "Model", "MODEL", " model", "model ", "mo\u200bdel", "model\u0000", "\uff4dodel", "max_token\u017f",
            "STREAM", "Prompt",
        ],
        [True, False],
    )
)  # fmt: skip
def test_a_name_that_only_some_servers_know_is_refused(odd: bytes, name: str, is_first: bool) -> None:
    for is_ascii in (True, False):
        member = f"{json.dumps(name, ensure_ascii=is_ascii)}:7".encode()
        members = [member, b'"model":"m"', odd] if is_first else [b'"model":"m"', odd, member]
        with pytest.raises(InvalidRequest, match="exactly so"):
            read(b"{" + b",".join(members) + b"}")


@for_every(product(ODD, [b'"model"', b'"\\u006dodel"', b'"mode\\u006C"']))
def test_a_name_that_stands_twice_goes_out_once(odd: bytes, second: bytes) -> None:
    found = read(b'{"model":"dear",' + odd + b"," + second + b':"cheap","messages":[{"model":1,"model":2}]}')
    assert found.model == "cheap"
    assert b"dear" not in found.body
    assert found.body.count(b'{"model":1,"model":2}') == 1
    assert bytes(found.members["model"]) == b'"cheap"'


@pytest.mark.parametrize("odd", ODD)
def test_any_other_body_stays_as_it_is(odd: bytes) -> None:
    body = b' { "model" : "m" ,' + odd + b', "Seed":1, "messages":[{"Model":1,"model":"x","model":"y"}] } '
    found = read(body)
    assert found.body == body
    assert found.members is not None
    assert found.model == "m"


def test_what_stands_in_front_of_utf_8_goes() -> None:
    assert read(b"\xef\xbb\xbf" + b'{"model":"m","x":NaN}').body == b'{"model":"m","x":NaN}'


def test_a_body_that_is_not_understood_has_no_members() -> None:
    many = b'{"model":"m","x":NaN,' + b",".join(b'"%d":1' % number for number in range(1000)) + b"}"
    assert read(many).members is None
