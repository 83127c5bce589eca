"""The yardstick: the least that a Starlette + aiohttp forwarder can do. Reads the body, sends it on, streams back."""

import argparse
import contextlib
from collections.abc import AsyncIterator

import aiohttp
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

HOP_BY_HOP = {"host", "connection", "keep-alive", "transfer-encoding", "content-length", "te", "upgrade"}


def application(upstream: str) -> Starlette:
    """A forwarder of every POST to ``upstream`` (scheme, host and port)."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, object]]:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
            yield {"session": session}

    async def forward(request: Request) -> Response:
        headers = [(k, v) for k, v in request.headers.items() if k not in HOP_BY_HOP]
        body = await request.body()
        answer = await request.state.session.post(upstream + request.url.path, data=body, headers=headers)

        async def chunks() -> AsyncIterator[bytes]:
            try:
                async for chunk in answer.content.iter_any():
                    yield chunk
            finally:
                answer.release()

        back = {k: v for k, v in answer.headers.items() if k.lower() not in HOP_BY_HOP}
        return StreamingResponse(chunks(), status_code=answer.status, headers=back)

    async def healthz(request: Request) -> Response:
        return PlainTextResponse("ok")

    routes = [Route("/healthz", healthz), Route("/{path:path}", forward, methods=["POST"])]
    return Starlette(routes=routes, lifespan=lifespan)


def main() -> None:
    """Serve until terminated."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--upstream", required=True)
    args = parser.parse_args()
    uvicorn.run(
        application(args.upstream),
        port=args.port,
        loop="uvloop",
        http="httptools",
        log_level="warning",
        access_log=False,
    )


if __name__ == "__main__":
    main()
