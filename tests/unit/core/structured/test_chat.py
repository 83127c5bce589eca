"""The request that is sent has the assembled messages, and nothing of the section."""

import orjson

from proxy.core.layout.tiers import Tier
from proxy.core.request.parsed_body import parse_body
from proxy.core.structured.blocks.blocks import Assembly, Block
from proxy.core.structured.chat import body_of
from proxy.core.structured.panels.pairs import DECLARATION

SENT = parse_body(b'{"model":"m","stratiform":{"a":1},"messages":[1], "tools":[{"x":1.0}]}')
ASSEMBLY = Assembly((Block(Tier.ACTIVE, "prompt", (), (b'{"n":0}', b'{"n":1.0}')),))


def test_the_messages_are_those_of_the_assembly_and_the_section_is_left_out() -> None:
    assert body_of(SENT, ASSEMBLY) == b'{"model":"m","messages":[{"n":0},{"n":1.0}],"tools":[{"x":1.0}]}'


def test_the_tool_of_the_panels_stands_in_front_of_the_clients_own() -> None:
    tools = orjson.loads(body_of(SENT, ASSEMBLY, declares_tool=True))["tools"]
    assert tools == [orjson.loads(DECLARATION), {"x": 1.0}]


def test_tools_that_are_no_list_stay_as_they_are() -> None:
    odd = parse_body(b'{"stratiform":{"a":1},"messages":[1],"tools":7}')
    assert orjson.loads(body_of(odd, ASSEMBLY, declares_tool=True))["tools"] == 7
