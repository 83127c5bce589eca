"""Calls of panels by the model: the proxy answers them, and the client never sees them.

A model that sees live panels may ask for one by the tool that shows them, which no client knows. Where it asks for
nothing else, a further call follows at the same deployment, with the panel's current text, and its answer goes on where
the first one has stopped: at most two such calls. Beside the client's own calls ours is taken out, and nothing follows.
The client sees one answer, whose usage is the sum. An answer that came compressed is not read, and passes as it is.
"""

from collections.abc import AsyncIterator

from proxy.core.response.body_fold import BodyFold
from proxy.core.response.panel_body import Earlier, PanelBody, panel_body
from proxy.core.response.panel_calls import PanelCallOutcome
from proxy.core.response.panel_stream import PanelStream
from proxy.core.response.stream import StreamFold
from proxy.engine.answers.further_calls import FurtherCalls, NotContinued
from proxy.engine.answers.upstream_answer import ended
from proxy.engine.headers import content_length, content_type, get
from proxy.errors import ProxyError
from proxy.ports import Answer, Call, Headers

_MOST_BODY_BYTES = 8 << 20
"""A longer JSON body is not read."""


def reads_panel_calls(answer: Answer, call: Call) -> bool:
    """Whether calls of panels can be found in an answer."""
    kind, coding = content_type(answer.headers), get(answer.headers, "content-encoding")
    if answer.status >= 300 or coding not in (None, "", "identity"):
        return False
    return "json" in kind or (call.stream and (not kind or kind.startswith("text/event-stream")))


class _Continued:
    """An upstream's answer, and those that go on with it."""

    def __init__(self, first: Answer, further: FurtherCalls) -> None:
        self.status = first.status
        self.headers: Headers = [pair for pair in first.headers if pair[0].lower() != "content-length"]
        self._first = first
        self._further = further
        self._current = first

    async def aclose(self) -> None:
        """Close whatever is open."""
        if self._current is not self._first:
            await self._current.aclose()
        await self._first.aclose()


class StreamAnswer(_Continued):
    """A stream of events, with the streams that go on with it."""

    async def chunks(self) -> AsyncIterator[bytes]:
        """The answers as one stream. Raises what interrupts it."""
        further = self._further
        stream, fold = PanelStream(may_follow=further.may_follow), StreamFold()
        further.begin(fold)
        async for chunk in _edited(self._first, stream, fold):
            yield chunk
        while calls := stream.wanted:
            message = await further.service.aside.run_large(stream.said_bytes, stream.message)
            call = await further.request(message, calls)
            if call is None:
                further.count(PanelCallOutcome.GAVE_UP, calls)
                yield stream.end()
                return
            following = PanelStream(may_follow=further.may_follow, opening=stream.opening())
            try:
                async for chunk in self._following(call, following):
                    yield chunk
                if following.is_broken and not following.has_content:
                    raise NotContinued("its stream holds an error")
            except ProxyError as error:
                further.broke(error, calls)
                if following.has_content:
                    # The client must not take what it has for a whole answer.
                    raise
                yield stream.end()
                return
            further.count(PanelCallOutcome.ANSWERED, calls)
            stream = following
        further.left_over(stream.taken)

    async def _following(self, call: Call, stream: PanelStream) -> AsyncIterator[bytes]:
        fold = StreamFold()
        self._current = await self._further.open(call, fold)
        kind = content_type(self._current.headers)
        if kind and not kind.startswith("text/event-stream"):
            raise NotContinued("it is no stream")
        async for chunk in _edited(self._current, stream, fold):
            self._further.attempts.answered()
            yield chunk
        await self._current.aclose()


class BodyAnswer(_Continued):
    """One JSON body. It is given out when all of it is known; an empty piece in front of it says that it has begun."""

    async def chunks(self) -> AsyncIterator[bytes]:
        """The last answer's body, with what the earlier ones have said. Raises what interrupts it."""
        further, parts, size = self._further, list[bytes](), 0
        fold, may_follow = BodyFold(content_length(self._first.headers)), further.may_follow
        further.begin(fold)
        async for chunk in self._first.chunks():
            fold.feed(chunk)
            parts.append(chunk)
            size += len(chunk)
            if size <= _MOST_BODY_BYTES:
                yield b""
                continue
            yield b"".join(parts)
            parts.clear()
        fold.close()
        if parts and size <= _MOST_BODY_BYTES:
            yield await self._last(b"".join(parts), may_follow=may_follow)

    async def _last(self, body: bytes, *, may_follow: bool) -> bytes:
        """The body that the client gets for this one."""
        further = self._further
        read = await self._read(body, None, may_follow=may_follow)
        while read.message is not None:
            call = await further.request(read.message, read.taken)
            if call is None:
                further.count(PanelCallOutcome.GAVE_UP, read.taken)
                return read.body
            try:
                following = await self._following(call, read.earlier)
            except ProxyError as error:
                further.broke(error, read.taken)
                if not read.earlier.texts.get("content"):
                    raise
                return read.body
            further.count(PanelCallOutcome.ANSWERED, read.taken)
            read = following
        further.left_over(read.taken)
        return read.body

    async def _following(self, call: Call, earlier: Earlier) -> PanelBody:
        fold, parts, size = BodyFold(), list[bytes](), 0
        may_follow = self._further.may_follow
        self._current = await self._further.open(call, fold)
        async for chunk in self._current.chunks():
            self._further.attempts.answered()
            fold.feed(chunk)
            size += len(chunk)
            if size > _MOST_BODY_BYTES:
                raise NotContinued("it is too long")
            parts.append(chunk)
        fold.close()
        await self._current.aclose()
        return await self._read(b"".join(parts), earlier, may_follow=may_follow)

    async def _read(self, body: bytes, earlier: Earlier | None, *, may_follow: bool) -> PanelBody:
        run_large = self._further.service.aside.run_large
        read = await run_large(len(body), panel_body, body, earlier, may_follow=may_follow)
        if read is None and earlier is not None:
            raise NotContinued("there is no message in it")
        return read or PanelBody(body, Earlier({}))


def continued(answer: Answer, further: FurtherCalls) -> Answer:
    """The answer without calls of panels, and with what follows them."""
    is_body = "json" in content_type(answer.headers)
    return BodyAnswer(answer, further) if is_body else StreamAnswer(answer, further)


async def _edited(answer: Answer, stream: PanelStream, fold: StreamFold) -> AsyncIterator[bytes]:
    """What of an answer may pass; the fold reads all of it."""
    chunks = answer.chunks()
    async for chunk in chunks:
        fold.feed(chunk)
        yield stream.feed(chunk)
        if stream.is_over:
            break
    fold.close()
    if not stream.is_over:
        yield stream.close()
    await ended(chunks)
