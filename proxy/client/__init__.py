"""A small helper for clients of structured context.

A client gives the parts of its repository that it shows: files, symbols, pages, a review, images. A ``Context`` holds
the parts of one conversation. It makes the value for ``extra_body={"stratiform": ...}`` of the OpenAI SDK, in which
each content is sent once and named by its digest afterwards. ``chat`` and ``achat`` send requests with it through an
OpenAI client; contents that the proxy has lost are sent again. Any client works that has the OpenAI SDK's
``chat.completions.create``, and whose errors have ``status_code`` and ``body``.

The package needs only the standard library. It reads no files and opens no connections: the client's own SDK does that.
"""

import json
import os
import posixpath
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

__all__ = ["Context", "achat", "chat", "missing_digests", "review_digest", "text_digest", "token_usage"]

Path = str | os.PathLike[str]
TierName = Literal["L0", "L1", "L2", "L3"]
Minimum = Literal["chunk_messages", "chunk_tokens", "keep_messages", "keep_tokens"]
"""The minimums for freezing the oldest messages: how many messages and tokens are frozen at once, and how many messages
and tokens stay behind them."""
MOST_DELIVERED = 50_000
"""How many digests are remembered. The oldest are forgotten first, and their contents are sent again."""


@dataclass(frozen=True, slots=True)
class _File:
    text: str | None
    digest: str
    is_selected: bool


class Context:
    """The state of one conversation. A path may be given in any spelling; ``./a.py`` and ``a.py`` are one file.

    ``session`` is the conversation's name; without one the proxy recognises the conversation by its messages.
    ``assembly`` is ``tiered`` or ``flat``. If ``use_repo_map`` is off, neither tree nor symbols are sent to the model.
    ``detach`` says whether, or by which minimums, the proxy freezes the oldest messages into a panel; None leaves it to
    the operator. ``compaction`` lets the proxy shorten the conversation by a call of its own. ``return_usage``: each
    answer says what its request used (``token_usage`` reads that).

    A message is named by its index in the ``messages`` of the request. A setting for a message stays until ``forget``
    or ``forget_all``. A client that removes messages from its list, or inserts some, must make all these settings anew.

    ``body`` never changes the context. ``delivered`` and ``missing`` tell the context the outcome of a body: ``chat``
    and ``achat`` call them by themselves.
    """

    def __init__(
        self,
        session: str = "",
        *,
        assembly: Literal["tiered", "flat"] = "tiered",
        use_repo_map: bool = True,
        detach: bool | Mapping[Minimum, int] | None = None,
        compaction: bool = False,
        return_usage: bool = False,
    ) -> None:
        # The members that each request has, exactly as they are here. None: the request does not have the member.
        self._fields: dict[str, Any] = {
            "session": session or None,
            "assembly": None if assembly == "tiered" else assembly,
            "use_repo_map": None if use_repo_map else False,
            "detach": dict(detach) if isinstance(detach, Mapping) else detach,
            "compaction": compaction or None,
        }
        self._asked: dict[str, dict[str, Any]] = {}
        self._returns_usage = return_usage
        self._files: dict[str, _File] = {}
        self._symbols: dict[str, str] = {}
        self._urls: dict[str, dict[str, str]] = {}
        self._review: dict[str, Any] | None = None
        self._drops_review = False
        self._images: list[str] = []
        # The values that are sent with one request only, by the member of the section.
        self._once: dict[str, dict[str, None]] = {"removed": {}, "modified": {}, "broken": {}}
        self._panels: dict[str, dict[str, str]] = {}
        self._metas: dict[int, dict[str, Any]] = {}
        self._has_history = bool(detach)
        self._delivered: OrderedDict[str, None] = OrderedDict()

    def select(self, path: Path, text: str | None) -> None:
        """Show a file by its whole text. ``text`` is None if the file cannot be read as text. Raises ValueError for a
        text with half of a surrogate pair."""
        self._list(path, text, is_selected=True)

    def show(self, path: Path, text: str | None = None) -> None:
        """Show a file by its symbols. The proxy makes the symbols from the text. If there is no text, give the symbols
        with ``set_symbols``."""
        self._list(path, text, is_selected=False)

    def hide(self, path: Path) -> None:
        """Stop showing a file that still exists."""
        self._files.pop(_key(path), None)
        self._symbols.pop(_key(path), None)

    def remove(self, path: Path) -> None:
        """Tell the proxy that the file no longer exists, with the next request that arrives."""
        self.hide(path)
        self._once["removed"][_key(path)] = None

    def mark_modified(self, path: Path) -> None:
        """Count the file as changed in the next request, even if its text is the same."""
        self._once["modified"][_key(path)] = None

    def mark_broken(self, *tiers: TierName) -> None:
        """Count these tiers as broken in the next request: their content will not be in the provider's cache."""
        self._once["broken"] |= dict.fromkeys(tiers)

    def set_symbols(self, path: Path, block: str) -> None:
        """Set a file's symbols, which come from the client's own index."""
        self._symbols[_key(path)] = block
        self._once["removed"].pop(_key(path), None)

    def set_legend(self, text: str) -> None:
        """Set the text that explains the notation of the client's own symbols."""
        self._fields["legend"] = text or None

    def tree(self, paths: Iterable[Path] | bool) -> None:
        """Set the paths of the repository's tree. True shows the paths of the listed files, False shows no tree."""
        shown = paths or None if isinstance(paths, bool) else list(dict.fromkeys(map(_key, paths)))
        self._fields["tree"] = shown

    def add_url(self, url: str, content: str, *, title: str = "", symbols: str = "") -> None:
        """Show a page that the client has fetched. A request may have at most three pages."""
        self._urls[url] = {"url": url, "content": content} | _said(title=title, symbols=symbols)

    def drop_url(self, url: str) -> None:
        """Stop showing a page."""
        self._urls.pop(url, None)

    def set_review(
        self,
        *,
        branch: str = "",
        commits: Sequence[str] = (),
        stats: str = "",
        log: str = "",
        pre_change_symbols: str = "",
        reverse_diffs: Mapping[str, str] | None = None,
    ) -> None:
        """Set the code review that the conversation is about, until ``drop_review``. ``reverse_diffs`` lead from the
        new text of a path back to the old one."""
        self._drops_review = False
        self._review = {
            "branch": branch,
            "commits": list(commits),
            "stats": stats,
            "log": log,
            "pre_change_symbols": pre_change_symbols,
            "reverse_diffs": dict(reverse_diffs or {}),
        }

    def drop_review(self) -> None:
        """End the review: the conversation is no longer about it."""
        self._review, self._drops_review = None, True

    def add_image(self, url: str) -> None:
        """Add an image to the next prompt, by its URL or as a data URL."""
        self._images.append(url)

    def set_panel(self, id: str, content: str, *, kind: str = "", header: str = "") -> None:
        """Show a live panel, or update its content. ``id`` consists of ASCII letters, digits, ``_`` and ``-``. A panel
        that is set again keeps its place. A panel with empty content is not shown. Raises ValueError for half of a
        surrogate pair."""
        try:
            (header + content).encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"the panel {id!r} holds half of a surrogate pair") from error
        self._panels[id] = {"id": id, **_said(kind=kind, header=header), "content": content}
        self._has_history = True

    def drop_panel(self, id: str) -> None:
        """Stop showing a panel."""
        self._panels.pop(id, None)

    @property
    def panels(self) -> tuple[str, ...]:
        """The ids of the panels, in the order in which they were first set."""
        return tuple(self._panels)

    def set_prompts(
        self,
        *,
        persona: str = "",
        override: str = "",
        tools: bool | None = None,
        plugins: bool | None = None,
        agents: bool | None = None,
        context: Mapping[str, Mapping[str, Any]] | None = None,
        extra: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Set which of the operator's prompts each request asks for from now on. This replaces earlier settings.
        Without an argument the requests ask for no prompts."""
        self._asked["prompts"] = _said(
            persona=persona,
            override=override,
            tools=tools,
            plugins=plugins,
            agents=agents,
            context=context,
            extra=list(extra),
        )

    def set_window(
        self,
        *,
        profile: str = "",
        instruction: str = "",
        selection: str = "",
        prefix: str = "",
        suffix: str = "",
        summary: str = "",
        virtual_files: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Set the capability profile of each request from now on, and the parts that are fitted to its context window.
        This replaces earlier settings. The proxy takes parts only from a context that shows nothing else."""
        self._asked["window"] = _said(
            profile=profile,
            instruction=instruction,
            selection=selection,
            prefix=prefix,
            suffix=suffix,
            summary=summary,
            virtual_files=list(virtual_files),
        )

    def summarize(self, index: int, tl_dr: str) -> None:
        """Send ``tl_dr`` in place of this message's content. Raises ValueError if ``tl_dr`` is blank."""
        if not tl_dr.strip():
            raise ValueError("a summarized message needs a text: delete a message that shall say nothing")
        self._describe(index, {"status": "summarized", "tl_dr": tl_dr})

    def delete(self, index: int) -> None:
        """Stop sending this message."""
        self._describe(index, {"status": "deleted"})

    def detach(self, index: int) -> None:
        """Stop sending this message, because it is shown elsewhere, for example in a panel."""
        self._describe(index, {"status": "detached"})

    def forget(self, index: int) -> None:
        """Send this message unchanged again."""
        self._metas.pop(index, None)

    def forget_all(self) -> None:
        """Send all messages unchanged: the client's list of messages has changed."""
        self._metas.clear()

    def body(self, *, whole: bool = False) -> dict[str, Any]:
        """The value of ``stratiform``. Delivered contents are in it as digests, unless the body shall be ``whole``."""
        files = []
        for path, file in self._files.items():
            found: dict[str, Any] = {"path": path}
            if file.digest and file.digest in self._delivered and not whole:
                found["digest"] = file.digest
            elif file.is_selected or file.text is not None:
                found["content"] = file.text
            files.append(found | ({"selected": True} if file.is_selected else {}))
        body: dict[str, Any] = {"files": files} | _said(
            symbols=[{"path": path, "block": block} for path, block in self._symbols.items()],
            urls=list(self._urls.values()),
            images=list(self._images),
            **{name: list(said) for name, said in self._once.items()},
        )
        body |= {name: value for name, value in deepcopy(self._fields).items() if value is not None}
        if self._review is not None:
            digest = review_digest(self._review)
            is_named = digest in self._delivered and not whole
            body["review"] = {"digest": digest} if is_named else dict(self._review)
        elif self._drops_review:
            body["review"] = None
        if self._has_history:
            # The panels are sent even if there are none: then the rules of the history hold.
            body["panels"] = [dict(panel) for panel in self._panels.values()]
        body |= _said(messages_meta=[dict(self._metas[index]) for index in sorted(self._metas)])
        asked = _said(**deepcopy(self._asked))
        if asked and body == {"files": []}:
            body = {}  # Parts of a window cannot go with structured context, not even with an empty one.
        return body | asked | _said(return_usage=self._returns_usage or None)

    def delivered(self, body: Mapping[str, Any]) -> None:
        """Note that a request with this body has been answered. Its contents need not be sent again, and settings for
        one request only end with it."""
        for file in body.get("files", ()):
            if isinstance(file.get("content"), str):
                self._remember(text_digest(file["content"]))
        review = body.get("review")
        if review is not None and "digest" not in review:
            self._remember(review_digest(review))
        if "review" in body and review is None:
            self._drops_review = False
        for name, said in self._once.items():
            for each in body.get(name, ()):
                said.pop(each, None)
        del self._images[: len(body.get("images", ()))]

    def missing(self, digests: Iterable[str]) -> None:
        """Note that the proxy lacks these contents: the next body contains them again."""
        for digest in digests:
            self._delivered.pop(digest, None)

    def _list(self, path: Path, text: str | None, *, is_selected: bool) -> None:
        try:
            digest = "" if text is None else text_digest(text)
        except UnicodeEncodeError as error:
            raise ValueError(f"the text of {_key(path)!r} holds half of a surrogate pair: give None instead") from error
        self._files[_key(path)] = _File(text, digest, is_selected)
        self._once["removed"].pop(_key(path), None)

    def _describe(self, index: int, meta: dict[str, Any]) -> None:
        if index < 0:
            raise ValueError("a message is named by its index from the beginning, which stays when others follow")
        self._metas[index] = {"index": index, **meta}
        self._has_history = True

    def _remember(self, digest: str) -> None:
        self._delivered[digest] = None
        self._delivered.move_to_end(digest)
        if len(self._delivered) > MOST_DELIVERED:
            self._delivered.popitem(last=False)


def _said(**fields: Any) -> dict[str, Any]:
    """The fields that are set. False is a value; an empty text, list or mapping is not."""
    return {name: value for name, value in fields.items() if value or value is False}


def _key(path: Path) -> str:
    """The path in one spelling. The proxy reports what is wrong with a path."""
    text = os.fspath(path).replace("\\", "/")
    # POSIX leaves two slashes at the beginning as they are; to the proxy they are one.
    return posixpath.normpath(f"/{text.lstrip('/')}" if text.startswith("/") else text) if text else text


def text_digest(text: str) -> str:
    """The SHA-256 of the text in UTF-8, as lower-case hexadecimal digits. Raises ValueError if the text holds half of a
    surrogate pair, which UTF-8 cannot represent."""
    return sha256(text.encode()).hexdigest()


def review_digest(review: Mapping[str, object]) -> str:
    """The same digest for a review's JSON object in the canonical form of RFC 8785. The object is taken exactly as it
    is sent: strings, arrays of strings, objects of strings, and None."""
    return text_digest(json.dumps(_ordered(review), ensure_ascii=False, separators=(",", ":")))


def _ordered(fields: Mapping[str, object]) -> dict[str, object]:
    in_order = sorted(fields.items(), key=lambda field: field[0].encode("utf-16-be"))
    return {name: _ordered(value) if isinstance(value, Mapping) else value for name, value in in_order}


# Of each attempt, whether it is the last one.
_ATTEMPTS = (False, False, True)
_CONFLICT = 409


def chat(client: Any, context: Context, **arguments: Any) -> Any:
    """Calls ``client.chat.completions.create(**arguments)`` with the context in ``extra_body``, and returns its result,
    which may be a stream. If the proxy lacks contents, the request is sent again with these contents, and once more
    with all contents. The client's errors are raised as they are."""
    for is_last in _ATTEMPTS:
        with _attempt(context, arguments, is_last=is_last) as complete:
            return client.chat.completions.create(**complete)
    raise AssertionError("the last attempt returns or raises")


async def achat(client: Any, context: Context, **arguments: Any) -> Any:
    """The same as ``chat``, for an asynchronous client."""
    for is_last in _ATTEMPTS:
        with _attempt(context, arguments, is_last=is_last) as complete:
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
