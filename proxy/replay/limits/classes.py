"""The kind of session that a trace is: does the client's own order let a cache keep what it could keep?"""

from collections.abc import Sequence

from proxy.core.caches.prompt import Prompt
from proxy.replay.limits.free import shares
from proxy.replay.limits.segments import Bag

# The shortest life on sale: content that comes back later than that is not there any more, whatever its order.
_LIFE_S = 300.0


def prefix_share(prompts: Sequence[tuple[float, Prompt]], bags: Sequence[Bag]) -> float:
    """Of the tokens that requests repeat, the share that stands in a prefix which was sent within five minutes.

    Near 1 the client only appends, and markers are all that is needed. It is 1 where nothing is repeated.
    """
    passed: dict[tuple[bytes, bytes], float] = {}
    kept = 0
    for at, prompt in prompts:
        end = 0
        for digest, own_end in zip(prompt.hashes, prompt.ends, strict=True):
            before = passed.get((prompt.scope, digest))
            if before is None or at - before >= _LIFE_S:
                break
            end = own_end
        kept += end
        passed.update(dict.fromkeys(((prompt.scope, digest) for digest in prompt.hashes), at))
    repeated = sum(tokens for _, tokens in shares(bags))
    return kept / repeated if repeated else 1.0
