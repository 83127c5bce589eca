"""What a record does not tell is empty: older records, and those that leave fields out, mean nothing by them."""

import importlib
import pkgutil
from collections.abc import Iterator, Sequence

from msgspec import NODEFAULT, Struct

import proxy.planner
from proxy.planner.record import VERSION as FINGERPRINT_VERSION
from proxy.planner.sharing import VERSION
from tests.examples import for_every

# A piece or a break without a place, a prompt of which nobody knows how much is stored, and versions.
NOT_EMPTY = [("place", -1), ("stored", -1), ("version", VERSION), ("v", FINGERPRINT_VERSION)]
# What is learnt begins with what was fitted beforehand (proxy/planner/NUMBERS.md), and the tiers with their policy.
FITTED = frozenset({"means", "precisions", "rate", "tracker"})


def records() -> Iterator[type[Struct]]:
    for module in pkgutil.iter_modules(proxy.planner.__path__):
        found = importlib.import_module(f"proxy.planner.{module.name}")
        own = (one for one in vars(found).values() if isinstance(one, type) and one.__module__ == found.__name__)
        yield from (one for one in own if issubclass(one, Struct))


@for_every(records())
def test_a_field_that_is_left_out_is_empty(record: type[Struct]) -> None:
    fields, defaults = record.__struct_fields__, record.__struct_defaults__
    optional = zip(fields[len(fields) - len(defaults) :], defaults, strict=True)
    left_out = [name for name, default in optional if default is not NODEFAULT]
    assert not told(record(**dict.fromkeys(set(fields).difference(left_out))), left_out)


def told(record: Struct, fields: Sequence[str]) -> list[str]:
    """The fields that say something."""
    values = ((name, getattr(record, name)) for name in fields if name not in FITTED)
    return [name for name, value in values if (name, value) not in NOT_EMPTY and not is_empty(value)]


def is_empty(value: object) -> bool:
    """Whether a value is 0, no text, or holds only such values."""
    if isinstance(value, Struct):
        return not told(value, value.__struct_fields__)
    return all(map(is_empty, value)) if isinstance(value, list | tuple) else not value
