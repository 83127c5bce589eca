"""Which calls have a model write a text, so that the operator's prompts belong into them.

A call counts as one of them unless its path is known to be about something else: batches, runs of assistants and
providers' own forms ask a model, too.
"""

import re

from proxy.core.request.demand import Kind, demand_of

_WRITING = frozenset({Kind.TEXT, Kind.UNKNOWN})
_OTHERS = re.compile(
    r"/(?:fine_tuning|vector_stores|videos|containers|skills|organization)(?:/|$)"
    r"|/(?:evals(?:/[^/]+)?|classify|score|pooling|ocr)$"
    r"|/(?:batches|runs)/[^/]+/cancel$"
)
"""Training, stores, films, and what ends a call: https://platform.openai.com/docs/api-reference."""


def asks_for_text(method: str, path: str) -> bool:
    """Whether a request may ask a model for a text. ``path`` is as the most lenient server reads it, in small
    letters."""
    return demand_of(method, path, {}).kind in _WRITING and _OTHERS.search(path) is None
