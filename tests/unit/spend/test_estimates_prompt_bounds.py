"""The size of a picture, read from a header that bounds what is drawn."""

import struct

from proxy.spend.estimates import size_of

PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 640, 480) + bytes(16)
# A frame of a GIF may be larger than its header says.
GIF = b"GIF89a" + struct.pack("<HH", 640, 480) + bytes(3)


def test_a_header_tells_the_size_only_where_it_bounds_what_is_drawn() -> None:
    assert [size_of(header) for header in (PNG, GIF, b"")] == [(640, 480), None, None]
