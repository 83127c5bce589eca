"""Finds the field ``model`` in a multipart form (RFC 7578, RFC 2046 section 5.1) as the form arrives.

This module does no I/O. The model that is found here is checked against the models of the client's key, and then the
upstream reads the form again. Therefore everything that two readers could understand differently is refused. Line ends
may be CR LF or LF, because lenient readers accept both.
"""

import re
from collections.abc import Callable
from urllib.parse import unquote

from proxy.errors import InvalidRequest

_MOST_HEAD_BYTES = 16 << 10
_MOST_NAME_BYTES = 1024
_MOST_PADDING_BYTES = 256
_MOST_PARTS = 2_000
"""The number that servers accept by default: a thousand fields, and a thousand files."""
_NO_HEAD = re.compile(rb"\r?\n")
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_HEAD_END_BYTES = 4
_FOLD = re.compile(r"\r?\n[ \t]++")
_LINE = re.compile(r"\r?\n")
_PARAMETER = re.compile(r';\s*+([^\s=;"]++)\s*+=\s*+("[^"\\]*+(?:\\.[^"\\]*+)*+"|[^;]*+)')
_ESCAPED = re.compile(r"\\(.)")
_MOST_PARAM_CHARS = 128
_PLAIN_ENCODINGS = frozenset({"", "7bit", "8bit", "binary"})


class FormScan:
    """One form. ``model`` is the field's value, and ``span`` is its place in the form. Both are None until they are
    known. ``refuses`` returns whether the form must not have a field of that name.

    Each byte that arrives is scanned once, however the form is cut into chunks. ``_position`` is where the next scan
    begins in the bytes that are still kept. ``_searched`` is how far the end of a part's headers has been searched for.
    ``_state`` is the method that continues the scan. It returns whether there may be more to scan.
    """

    def __init__(self, boundary: bytes, refuses: Callable[[str], bool] | None = None) -> None:
        self._refuses = refuses
        self._delimiter = b"\n--" + boundary
        # The first delimiter may be at the very beginning.
        self._tail, self._at = b"\n", -1
        self._position = self._searched = self._parts = 0
        self._state: Callable[[FormScan], bool] = FormScan._in_body
        self._value_at: int | None = None
        self._file_at: int | None = None
        self.files: list[tuple[int, int]] = []
        """The places of those files in the form that have arrived completely."""
        self.model: str | None = None
        self.span: tuple[int, int] | None = None

    @property
    def is_strict(self) -> bool:
        """Whether some fields are refused, so that all of the form must be read."""
        return self._refuses is not None

    def feed(self, chunk: bytes) -> None:
        """Take a chunk that arrived. Raises InvalidRequest if this is no valid form, or if it has two models."""
        self._tail += chunk
        while self._state(self):
            pass
        self._tail = self._tail[self._position :]
        self._at += self._position
        self._searched -= self._position
        self._position = 0

    def _in_body(self) -> bool:
        """In a part, or before the first one: a delimiter comes next."""
        found = self._tail.find(self._delimiter, self._position)
        if found < 0:
            # The bytes after this position may be the beginning of the delimiter.
            edge = len(self._tail) - len(self._delimiter)
            if self._value_at is None:
                self._position = max(self._position, edge)
            else:
                self._check_length(edge - self._position)
            return False
        if self._value_at is not None:
            self._keep(found)
        if self._file_at is not None:
            self.files.append((self._file_at, self._at + found))
            self._file_at = None
        self._position = found + len(self._delimiter)
        self._state = FormScan._in_line
        return True

    def _keep(self, delimiter: int) -> None:
        """Store the model's name, which ends before the delimiter."""
        assert self._value_at is not None
        start = self._value_at - self._at
        end = delimiter - 1 if self._tail[delimiter - 1 : delimiter] == b"\r" else delimiter
        end = max(start, end)
        self._check_length(end - start)
        try:
            self.model = self._tail[start:end].decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest("the form's field 'model' is not UTF-8", param="model") from error
        self.span = (self._value_at, self._at + end)
        self._value_at = None

    def _check_length(self, size: int) -> None:
        if size > _MOST_NAME_BYTES:
            raise InvalidRequest("the form's field 'model' is too long", param="model")

    def _in_line(self) -> bool:
        """In the rest of a delimiter's line."""
        if self._tail.startswith(b"--", self._position):
            self._state = FormScan._behind_end
            return True
        end = self._tail.find(b"\n", self._position)
        if end < 0 and len(self._tail) - self._position <= _MOST_PADDING_BYTES:
            return False
        if end < 0 or self._tail[self._position : end].strip(b" \t\r"):
            raise InvalidRequest("the form cannot be read: a line begins as its boundary does")
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise InvalidRequest(f"the form has more than {_MOST_PARTS} parts")
        self._position = self._searched = end + 1
        self._state = FormScan._in_head
        return True

    def _in_head(self) -> bool:
        """In the headers of a part."""
        start = self._position
        end = _NO_HEAD.match(self._tail, start) or _HEAD_END.search(self._tail, max(start, self._searched))
        if (end.end() if end is not None else len(self._tail)) - start > _MOST_HEAD_BYTES:
            raise InvalidRequest("the form cannot be read: a part's headers do not end")
        if end is None:
            self._searched = len(self._tail) - _HEAD_END_BYTES + 1
            return False
        head = self._tail[start : end.start()].decode("latin-1")
        if self._refuses is not None:
            _check_fields(head, self._refuses)
        if _is_model(head):
            if self.model is not None:
                raise InvalidRequest("the form has the field 'model' twice", param="model")
            self._value_at = self._at + end.end()
        elif "file" in head.lower():
            self._file_at = self._at + end.end()
        # The line end may belong to a delimiter, if the part is empty.
        self._position = end.end() - 1
        self._state = FormScan._in_body
        return True

    def _behind_end(self) -> bool:
        """After the last delimiter, where nothing belongs to the form."""
        self._position = len(self._tail)
        return False


def boundary_of(content_type: str) -> bytes:
    """The boundary of a form. Raises InvalidRequest unless there is exactly one."""
    given = [_unquoted(value) for name, value in _PARAMETER.findall(content_type) if name.lower() == "boundary"]
    if len(given) != 1 or not 0 < len(given[0]) <= 70:
        raise InvalidRequest("content-type: a form needs one boundary")
    return given[0].encode("latin-1", "replace")


def _is_model(head: str) -> bool:
    """Whether a part is the field ``model``. Raises InvalidRequest if only some readers would say so."""
    fields = _fields(head)
    names = _names(fields)
    # RFC 2231 allows a value in pieces (name*0, name*1). Few servers join them, and no client writes them.
    is_in_pieces = any(name[-1:].isdigit() or name.endswith("0*") for name, _ in names)
    if not is_in_pieces and not any(_may_be_model(value) for _, value in names):
        return False
    encodings = {v.strip().lower() for n, _, v in fields if n.strip().lower() == "content-transfer-encoding"}
    if names != [("name", "model")] or not encodings <= _PLAIN_ENCODINGS:
        raise InvalidRequest("the form's field 'model' must be written plainly: name=\"model\"", param="model")
    return True


_Fields = list[tuple[str, str, str]]


def _fields(head: str) -> _Fields:
    return [line.partition(":") for line in _LINE.split(_FOLD.sub(" ", head)) if line]


def _names(fields: _Fields) -> list[tuple[str, str]]:
    """The names of a part, by the parameters that give them."""
    dispositions = [value for name, _, value in fields if name.strip().lower() == "content-disposition"]
    return [
        (name.lower(), _unquoted(value))
        for text in dispositions
        for name, value in _PARAMETER.findall(text)
        if name.lower().rstrip("*0123456789") == "name"
    ]


def _check_fields(head: str, refuses: Callable[[str], bool]) -> None:
    for _, name in _names(_fields(head)):
        plain = unquote(name.rpartition("'")[2])
        if any(refuses(part.strip(" []")) for part in plain.replace("[", ".").split(".")):
            raise InvalidRequest(
                "this key may send no form with a field that refers to stored objects or names further models",
                param=plain[:_MOST_PARAM_CHARS],
            )


def _may_be_model(name: str) -> bool:
    """Whether any reader may take the name for ``model``, however it is written. RFC 8187 puts a character set before
    the name, and PHP puts brackets after it. Some readers accept single quotes, and readers in C stop at a NUL."""
    plain = unquote(name.strip("'").rpartition("'")[2]).partition("\0")[0].strip().lower()
    return plain.partition("[")[0].strip() == "model"


def _unquoted(value: str) -> str:
    value = value.strip()
    return _ESCAPED.sub(r"\1", value[1:-1]) if len(value) > 1 and value[0] == value[-1] == '"' else value
