"""What is written into a body that is passed through."""

import orjson
import pytest

from tests.doubles import ModelList, make_deployment
from tests.unit.engine.parts import JSON, Bench, MemoryClient, answers


def salted(body: bytes) -> bytes:
    """The body as an engine gets it whose cache keeps the teams apart."""
    models = ModelList({"m": make_deployment(name="m", model="m", base_url="http://up", salts_cache=True)})
    found = Bench(answers(b"{}", headers=JSON), models=models)
    found.relay(MemoryClient(body, path="/completions"))
    (sent,) = found.upstream.bodies
    return sent


@pytest.mark.parametrize("body", [b"[1]", b'{"model": "m"} x', b'\x0b{"model": "m"}', b'{"model": "m"}\x0c'])
def test_what_is_no_object_of_json_does_not_become_one(body: bytes) -> None:
    assert salted(body) == body


@pytest.mark.parametrize("body", [b'{"model":"m"}', b' \r\n\t{"model": "m", "cache_salt": "of another team"}\n'])
def test_the_salt_of_the_team_comes_last(body: bytes) -> None:
    sent = salted(body)
    assert sent.startswith(body.strip()[:-1])
    assert len(orjson.loads(sent)["cache_salt"]) == 32
