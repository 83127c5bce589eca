"""Reads JSON of a known form, with every mistake as an error that a client can act on."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from proxy.core.wire.refusals import half_pair, refused
from proxy.core.wire.surrogates import same_shape
from proxy.errors import InvalidRequest

_Form = TypeVar("_Form")


def decoded(
    decoder: msgspec.json.Decoder[_Form], text: bytes, param: str, choices: Mapping[str, tuple[str, ...]]
) -> _Form:
    """The value of the text. ``param`` is where it stands in the request; ``choices`` are the values that a field may
    have, by the field's name. Raises InvalidRequest."""
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise refused(error, param, choices) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if same_shape(text) is not None:
            raise half_pair(text, param) from error
        raise InvalidRequest(f"'{param}' is not valid JSON", param=param, code="invalid_json") from error
