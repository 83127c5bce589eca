"""The paths of a client's files: in POSIX form, with nothing left to resolve.

The rules are those that a client's own system would apply to the text of a path; nothing is looked up.

- A backslash is a slash, for clients on Windows. Repeated slashes are one, and a slash at the end is left out.
- ``.`` and ``..`` are resolved by their text alone. A path that would leave the root is refused.
- A path is relative to the client's own root, or absolute: it begins with ``/``, or with a drive such as ``C:/``. An
  absolute path stays absolute, so that ``/src/a.py`` and ``src/a.py`` are two files.
- A path stands on a line of its own in the prompt. Control characters and line breaks are refused.
- Letters are kept as they are: their case, and the form in which an accent is written, tell files apart.
"""

import json
import re
from collections.abc import Mapping, Sequence

from proxy.core.structured.context import Review
from proxy.core.value import dataclass, field
from proxy.core.wire.refusals import invalid
from proxy.errors import InvalidRequest

MOST_PATH_CHARS = 4_096

# Control characters, the two Unicode line breaks that are not control characters, and halves of surrogate pairs.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# For the quick check, which joins paths by colons: a clean path has no colon, and a colon counts as the end of a name.
_COLONS_AS_SLASHES = bytes.maketrans(b":", b"/")
_PLAIN = bytes(byte for byte in range(0x20, 0x7F) if byte != ord("\\"))
_DRIVE = re.compile(r"[A-Za-z]:(?=/|$)")


def clean_path(path: str, param: str) -> str:
    """The path in POSIX form. Raises InvalidRequest for a path in ``param`` that is empty or too long, leaves the root,
    or holds a control character."""
    if len(path) > MOST_PATH_CHARS:
        raise _refused(param, f"is longer than {MOST_PATH_CHARS} characters")
    if _UNPRINTABLE.search(path):
        raise _refused(param, "holds a control character, a line break or half of a surrogate pair")
    path = path.replace("\\", "/")
    drive = _DRIVE.match(path)
    root = "/" if path.startswith("/") else f"{drive[0]}/" if drive else ""
    names: list[str] = []
    for name in path[len(root) :].split("/"):
        if name == "..":
            if not names:
                raise _refused(param, "leads out of the client's root folder", "path_outside_root")
            names.pop()
        elif name not in ("", "."):
            names.append(name)
    if not names:
        raise _refused(param, "names no file")
    return root + "/".join(names)


def clean_paths(paths: Sequence[str], param: str, field: str = "") -> tuple[str, ...]:
    """The paths in POSIX form. Raises InvalidRequest with the place of the first bad path within ``param``; ``field``
    is the place of a path within its element."""
    if _are_clean(paths):
        return tuple(paths)
    return tuple(
        [
            path if _are_clean((path,)) else clean_path(path, f"{param}[{index}]{field}")
            for index, path in enumerate(paths)
        ]
    )


def _refused(param: str, why: str, code: str = "invalid_path") -> InvalidRequest:
    """The error that a client sees. It does not quote the path."""
    return InvalidRequest(f"the path in '{param}' {why}", param=param, code=code)


def distinct_paths(paths: Sequence[str], param: str, field: str = "") -> tuple[str, ...]:
    """The paths in POSIX form, made by ``clean_paths``. Also raises InvalidRequest if two of them are the same."""
    found = clean_paths(paths, param, field)
    if len(set(found)) == len(found):
        return found
    seen: dict[str, int] = {}
    for index, path in enumerate(found):
        if path in seen:
            why = f"is the same path as '{param}[{seen[path]}]{field}', once both are resolved"
            raise invalid(f"{param}[{index}]{field}", why, "duplicate_path")
        seen[path] = index
    return found


def _are_clean(paths: Sequence[str]) -> bool:
    """Whether all of them are surely clean. This quick check of all paths at once recognises most clean paths."""
    text = f":{':'.join(paths)}:"
    if not text.isascii() or text.count(":") != len(paths) + 1:
        return False
    ends = text.encode().translate(_COLONS_AS_SLASHES)
    return (
        not ends.translate(None, _PLAIN)
        and b"//" not in ends
        and b"/." not in ends
        and max(map(len, paths), default=0) <= MOST_PATH_CHARS
    )


@dataclass(frozen=True, slots=True)
class FormReview:
    """The field ``review`` of a request: a review, or the ``digest`` of one that an earlier request has sent, in which
    case ``review`` is None. ``text`` is the JSON of the review, of which ``digest`` is the digest."""

    digest: str
    review: Review | None = None
    text: str = field(default="", repr=False)


def review_json(fields: Mapping[str, object]) -> str:
    """The JSON object of a review in the canonical form of RFC 8785 (no white space; names in the order of their UTF-16
    code units; no needless escapes).

    The object is used exactly as it was sent: fields that were left out stay out, and paths are not resolved.
    ``fields`` hold strings, arrays of strings, objects of strings and None.
    """
    return json.dumps(_ordered(fields), ensure_ascii=False, separators=(",", ":"))


def _ordered(fields: Mapping[str, object]) -> dict[str, object]:
    names = sorted(fields, key=lambda name: name.encode("utf-16-be"))
    values = {name: fields[name] for name in names}
    return {name: _ordered(value) if isinstance(value, Mapping) else value for name, value in values.items()}
