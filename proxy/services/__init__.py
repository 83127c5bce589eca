"""What the engine asks for: plans, structured context, windows and prompts.

Requests come in from the engine; plans and texts go out. This package loads and saves what layouts have learnt, counts
tokens, refreshes prefixes that are about to expire, and has summaries written of long conversations. It decides nothing
about layouts.

Here are the facts that are known about the models behind deployments: their limits and prices, and their tokenizer. A
tiktoken encoding is looked for on this machine. Nothing is ever fetched.
"""

import binascii
import hashlib
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path

import tiktoken

from proxy.kit.value import dataclass
from proxy.models import Deployment
from proxy.models.deployments import litellm_file
from proxy.protocol.prices import Price
from proxy.protocol.request.tokens import Encode, bytes_over_four

Limits = tuple[int | None, int | None]
"""The most tokens that a model reads and writes, as far as they are known."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The known facts about a deployment's model: its limits, and its price in USD per token. None: the price is
    unknown."""

    limits: Callable[[Deployment], Limits] = lambda deployment: (None, None)
    price: Callable[[Deployment], Price | None] = lambda deployment: None


# tiktoken names the file of an encoding by the SHA-1 of its download address. litellm's wheel contains such files.
_O200K_ADDRESS = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
_O200K_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"

# The split pattern of o200k_base is a fact of the encoding (tiktoken, openai_public.py).
_O200K_PATTERN = "|".join(
    [
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""\p{N}{1,3}""",
        r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
        r"""\s*[\r\n]+""",
        r"""\s+(?!\S)""",
        r"""\s+""",
    ]
)

# One run of letters without a break takes more than linear time. Such runs in real text are never nearly this long.
_SLICE_CHARS = 100_000


@cache
def local_encode() -> Encode:
    """A token counting function: o200k_base if its file is on this machine, and otherwise UTF-8 bytes / 4. It takes a
    moment to load, so a process loads it once."""
    path = _encoding_file()
    if path is None:
        return bytes_over_four
    # Each line of the file holds a base64 token and its rank. The decoder of ``binascii`` is called directly, without
    # the checks of ``base64``: for 200,000 short words they cost more than the decoding.
    words = path.read_bytes().split()
    ranks = dict(zip(map(binascii.a2b_base64, words[::2]), map(int, words[1::2]), strict=True))
    encoding = tiktoken.Encoding("o200k_base", pat_str=_O200K_PATTERN, mergeable_ranks=ranks, special_tokens={})

    def encode(text: str) -> int:
        if len(text) <= _SLICE_CHARS:
            return len(encoding.encode_ordinary(text))
        slices = (text[i : i + _SLICE_CHARS] for i in range(0, len(text), _SLICE_CHARS))
        return sum(len(encoding.encode_ordinary(piece)) for piece in slices)

    return encode


def local_tokens(text: str) -> int:
    """The tokens of a text by ``local_encode``. The first call loads it, which takes a fifth of a second and 70 MB. So
    a proxy does not load it until a text comes whose tokens cannot be estimated."""
    return local_encode()(text)


@lru_cache(maxsize=1000)
def is_counted_by(model: str) -> bool:
    """Whether this model uses the tokenizer with which ``local_encode`` counts."""
    try:
        return (
            tiktoken.encoding_name_for_model(model.rsplit("/", 1)[-1]) == "o200k_base" and _encoding_file() is not None
        )
    except KeyError:
        return False


@cache
def _encoding_file() -> Path | None:
    name = hashlib.sha1(_O200K_ADDRESS.encode(), usedforsecurity=False).hexdigest()
    path = litellm_file(f"litellm_core_utils/tokenizers/{name}")
    return path if path is not None and hashlib.sha256(path.read_bytes()).hexdigest() == _O200K_SHA256 else None
