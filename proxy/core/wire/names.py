"""How lenient servers read the names of members."""

import unicodedata


def folded(name: str) -> str:
    """The name as the most lenient server reads it: small letters, compatible forms (Go's reader of JSON takes a long s
    for an s), without blanks and characters that are not seen."""
    if name.isascii() and name.isalnum():
        return name.lower()
    plain = unicodedata.normalize("NFKC", name).casefold()
    return "".join(letter for letter in plain if letter.isprintable() and not letter.isspace())
