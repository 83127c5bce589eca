"""The old place of ``proxy.core.recognition``: plugins of earlier versions import it."""

from proxy.core.renamed import renamed

__getattr__ = renamed(__name__, "proxy.core.recognition", {"Claim": "FileClaim"}, whole=True)
