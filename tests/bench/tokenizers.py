"""How many tokens tokenizers make of a byte, script by script: ``python -m tests.bench.tokenizers``.

Every character that Unicode has assigned is counted alone and in a run of twelve, by each tokenizer that is at hand.
The table shows for each script the most tokens a byte of UTF-8, and a byte of the NFKC form where that is longer: the
bound on prompts (``proxy/models/bound.py``) holds as long as no figure of the last column is above 1.
"""

import sys
import unicodedata
from collections.abc import Iterator
from functools import cache

from rich.progress import track

from tests.security.prompt_meter import counts

_RUN = 12
_MOST_SHOWN = 25


def scripts() -> Iterator[tuple[str, str]]:
    """The assigned characters, each with the first word of its name, which is nearly always its script."""
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if unicodedata.category(character) not in ("Cn", "Cs", "Co"):
            yield unicodedata.name(character, "control").split()[0].split("-")[0], character


@cache
def sizes(text: str) -> tuple[int, int]:
    """The bytes of a text, and those of its normal form where that is longer."""
    plain = len(text.encode())
    return plain, max(plain, len(unicodedata.normalize("NFKC", text).encode()))


def main() -> None:
    """Print the scripts with the most tokens a byte, for the worst tokenizer of each."""
    found: dict[str, tuple[float, float, str]] = {}
    for script, character in track(list(scripts()), "Counting"):
        for text in (character, character * _RUN):
            plain, longest = sizes(text)
            for name, count in counts().items():
                tokens = count(text)
                known = found.get(script, (0.0, 0.0, ""))
                if (tokens / longest, tokens / plain) > (known[1], known[0]):
                    found[script] = (tokens / plain, tokens / longest, name)
    print(f"{'script':24}{'a byte':>8}{'a byte of NFKC':>16}  tokenizer")
    for script, (plain_rate, rate, name) in sorted(found.items(), key=lambda row: -row[1][1])[:_MOST_SHOWN]:
        print(f"{script:24}{plain_rate:8.2f}{rate:16.2f}  {name}")
    highest = max(rate for _, rate, _ in found.values())
    print(f"{len(found)} scripts; the most tokens a byte of the longer form: {highest:.2f}")


if __name__ == "__main__":
    main()
