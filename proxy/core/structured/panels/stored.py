"""The types of what is kept of panels, with the bounds that are held against what comes back from a store."""

from typing import Annotated, Final

from msgspec import Meta

from proxy.core.digest import DIGEST_BYTES

_MOST_INDEX: Final = 1 << 31
_MOST_TIME_S: Final = 253_402_300_799
"""The last second of the year 9999."""
_MOST_USD: Final = 1e12

Digest = Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
DigestOrNone = Annotated[bytes, Meta(max_length=DIGEST_BYTES)]
PanelId = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]{1,64}\Z")]
Entry = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]{1,64}:[0-9a-f]{0,32}\Z")]
Count = Annotated[int, Meta(ge=0, le=_MOST_INDEX)]
Time = Annotated[float, Meta(ge=0, le=_MOST_TIME_S)]
Usd = Annotated[float, Meta(ge=0, le=_MOST_USD)]
