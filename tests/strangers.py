"""A server that is no proxy, and what it may answer."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

BODIES = (
    b"{}", b"null", b"[]", b'{"data": [{}], "has_more": false}', b'"object"', b'{"object": "list"}',
    b'{"object": "list", "data": 7, "has_more": false}', b'{"object": "list", "data": [7], "has_more": false}',
)  # fmt: skip


@contextmanager
def stranger(body: bytes) -> Iterator[str]:
    """Serves the same JSON at each address, as some other server may; its address."""

    class Same(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = HTTPServer(("127.0.0.1", 0), Same)
    threading.Thread(target=server.serve_forever, args=(0.01,)).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
