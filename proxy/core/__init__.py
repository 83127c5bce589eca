"""Old places of what plugins import. The code stands in ``proxy.kit`` and ``proxy.protocol``."""

from proxy.kit.renamed import keep

_RECOGNITION = "proxy.protocol.recognition"

keep(
    __name__,
    {
        "digest": "proxy.kit.digest",
        "line_breaks": f"{_RECOGNITION}.lines",
        "recognition": _RECOGNITION,
        "tiered_files": _RECOGNITION,
        "words": _RECOGNITION,
    },
    {"Form": "MessageKind", "Claim": "FileClaim"},
)
