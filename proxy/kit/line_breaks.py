"""The old place of ``proxy.protocol.recognition.lines``: plugins of earlier versions import it."""

from proxy.kit.renamed import renamed

__getattr__ = renamed(__name__, "proxy.protocol.recognition.lines", whole=True)
