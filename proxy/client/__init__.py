"""A small helper for clients of structured context.

A client gives the parts of its repository that it shows: files, symbols, pages, a review, images. It gets the value for
``extra_body={"stratiform": ...}`` of the OpenAI SDK. In this value each content is sent once and named by its digest
afterwards. If the proxy has lost a content, ``chat`` and ``achat`` send it again. The package needs only the standard
library. It reads no files and opens no connections: the client's own SDK does that.
"""

from proxy.client.context import Context, achat, chat, missing_digests, review_digest, text_digest, token_usage

__all__ = ["Context", "achat", "chat", "missing_digests", "review_digest", "text_digest", "token_usage"]
