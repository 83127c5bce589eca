"""Chat requests with structured context, through an OpenAI client: contents that the proxy lacks are sent again.

Any client works that has the OpenAI SDK's ``chat.completions.create``, and whose errors have ``status_code`` and
``body``.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from proxy.client.context import Context

_RESENDS = 2
_CONFLICT = 409


def chat(client: Any, context: Context, **arguments: Any) -> Any:
    """Calls ``client.chat.completions.create(**arguments)`` with the context in ``extra_body``, and returns its result,
    which may be a stream. If the proxy lacks contents, the request is sent again with these contents, and once more
    with all contents. The client's errors are raised as they are."""
    for attempt in _attempts(context, arguments):
        with attempt as complete:
            return client.chat.completions.create(**complete)
    raise AssertionError("the last attempt returns or raises")


async def achat(client: Any, context: Context, **arguments: Any) -> Any:
    """The same as ``chat``, for an asynchronous client."""
    for attempt in _attempts(context, arguments):
        with attempt as complete:
            return await client.chat.completions.create(**complete)
    raise AssertionError("the last attempt returns or raises")


def missing_digests(error: BaseException | None) -> list[str] | None:
    """The digests of the contents that the proxy lacks; None for any other error."""
    body = getattr(error, "body", None)
    if getattr(error, "status_code", None) != _CONFLICT or not isinstance(body, Mapping):
        return None
    inner = body.get("error", body)
    if not isinstance(inner, Mapping) or inner.get("code") != "missing_content":
        return None
    missing = inner.get("missing")
    return [each for each in missing if isinstance(each, str)] if isinstance(missing, list) else []


def token_usage(answer: Any) -> dict[str, Any] | None:
    """The usage of the request that belongs to an answer or to a chunk of a stream; None if it does not hold the usage.
    The answer may be one of the OpenAI SDK, or one that was read from JSON."""
    section = answer.get("stratiform") if isinstance(answer, Mapping) else getattr(answer, "stratiform", None)
    found = section.get("token_usage") if isinstance(section, Mapping) else None
    return dict(found) if isinstance(found, Mapping) else None


def _attempts(context: Context, arguments: Mapping[str, Any]) -> Iterator[AbstractContextManager[dict[str, Any]]]:
    for number in range(_RESENDS + 1):
        yield _attempt(context, arguments, is_last=number == _RESENDS)


@contextmanager
def _attempt(context: Context, arguments: Mapping[str, Any], *, is_last: bool) -> Iterator[dict[str, Any]]:
    """One request. It tells the context whether the request was answered or lacked contents. It suppresses the error of
    missing contents, except in the last attempt."""
    body = context.body(whole=is_last)
    try:
        yield {**arguments, "extra_body": {**(arguments.get("extra_body") or {}), "stratiform": body}}
    except Exception as error:
        missing = missing_digests(error)
        context.missing(missing or ())
        if missing is None or is_last:
            raise
    else:
        context.delivered(body)
