"""A small helper for clients of structured context.

What comes in is what a client shows of its repository: files, symbols, pages, a review, images. What goes out is the
value for ``extra_body={"stratiform": ...}`` of the OpenAI SDK, in which each content is sent once and named by its
digest afterwards; where the proxy has lost one, ``chat`` and ``achat`` send it again. The package needs nothing but the
standard library, reads no files and opens no connections: the client's own SDK does that.
"""

from proxy.client.chat import achat, chat, missing_digests, token_usage
from proxy.client.context import Context, review_digest, text_digest

__all__ = ["Context", "achat", "chat", "missing_digests", "review_digest", "text_digest", "token_usage"]
