"""Starlette's errors and unexpected exceptions, in the one form that clients know."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from proxy.errors import InternalError, InvalidRequest, MethodNotAllowed, NotFound, ProxyError, error_body

_SHOWN_CHARS = 256


def error_response(error: ProxyError) -> Response:
    """An error as a complete answer."""
    return Response(error_body(error), error.status, error.headers, media_type="application/json")


async def on_http_exception(request: Request, error: Exception) -> Response:
    """The answer if there is no such route, or if the route does not accept the method."""
    assert isinstance(error, HTTPException)
    # request.url is not used, because it decodes the query, which may not be UTF-8.
    what = f"{request.method} {request.scope['path'][:_SHOWN_CHARS]}"
    match error.status_code:
        case 404:
            return error_response(NotFound(f"Invalid URL ({what}): nothing is served there"))
        case 405:
            return error_response(MethodNotAllowed(f"Not allowed ({what})", headers=error.headers))
        case _:
            return error_response(InvalidRequest(error.detail))


async def on_surprise(request: Request, error: Exception) -> Response:
    """The answer to a bug outside the exchanges, which contain their own errors. The server logs the traceback, and the
    client never sees it."""
    return error_response(InternalError("an internal error of the proxy; its log has the details"))
