"""Messages that the proxy writes itself."""

from proxy.core.structured.messages import message, pair


def test_halves_of_surrogate_pairs_are_written_as_escapes() -> None:
    assert message("user", "\ud83d") == rb'{"role":"user","content":"\ud83d"}'
    assert pair("a", "b") == (b'{"role":"user","content":"a"}', b'{"role":"assistant","content":"b"}')
