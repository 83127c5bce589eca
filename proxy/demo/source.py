"""Python files of a small shop application, written by rule: realistic in size and shape, the same on every run."""

from collections.abc import Iterator, Sequence

from proxy.core.value import dataclass, replace

NOUNS = (
    ("order", "total"), ("basket", "weight"), ("customer", "balance"), ("supplier", "rating"), ("parcel", "distance"),
    ("invoice", "amount"), ("voucher", "discount"), ("crate", "capacity"), ("harvest", "yield_kg"), ("orchard", "area"),
    ("picker", "shift_hours"), ("payment", "fee"), ("refund", "reason_code"), ("stall", "rent"), ("season", "length"),
)  # fmt: skip

_FIND = '''
def find_@noun(store: Store, @noun_id: str) -> @Noun | None:
    """Return the @noun with that id, or None where there is none."""
    row = store.get("@noun", @noun_id)
    if row is None:
        log.debug("no @noun %s", @noun_id)
        return None
    return @Noun.from_row(row)
'''
_TOTAL = '''
def total_@field(@nouns: Iterable[@Noun], *, include_closed: bool = False) -> Decimal:
    """Add up the @field of each open @noun, and of the closed ones where they are asked for."""
    result = Decimal(0)
    for @noun in @nouns:
        if @noun.is_closed and not include_closed:
            continue
        result += @noun.@field or Decimal(0)
    return result.quantize(CENT)
'''
_CHECK = '''
def check_@noun(@noun: @Noun, rules: Rules) -> list[str]:
    """Return what is wrong with the @noun, worst first; an empty list means that it can be saved."""
    problems = []
    if not @noun.name.strip():
        problems.append("name is empty")
    if @noun.@field is not None and @noun.@field < rules.lowest_@field:
        problems.append(f"@field is below {rules.lowest_@field}")
    if @noun.updated_at < @noun.created_at:
        problems.append("updated before it was created")
    return problems
'''
_RANK = '''
def rank_@nouns(@nouns: Sequence[@Noun], limit: int = 20) -> list[@Noun]:
    """Return the @nouns with the largest @field, newest first where they are equal."""
    ordered = sorted(@nouns, key=lambda item: (item.@field or 0, item.created_at), reverse=True)
    return ordered[:limit]
'''
_CHANGE = '''
def change_@noun_@field(store: Store, @noun_id: str, value: Decimal, actor: Actor) -> @Noun:
    """Set the @field of one @noun and write the change to the audit log. Raises Missing where there is none."""
    with store.transaction() as transaction:
        row = transaction.get("@noun", @noun_id)
        if row is None:
            raise Missing("@noun", @noun_id)
        before = row["@field"]
        row["@field"] = value
        transaction.put("@noun", @noun_id, row)
        transaction.audit(actor.id, "@noun.@field", before, value)
    return @Noun.from_row(row)
'''
_EXPORT = '''
def export_@nouns(@nouns: Iterable[@Noun], writer: RowWriter) -> int:
    """Write every @noun as one row of a spreadsheet; return how many rows were written."""
    writer.header("id", "name", "@field", "created", "updated")
    count = 0
    for @noun in @nouns:
        writer.row(@noun.id, @noun.name, @noun.@field, @noun.created_at.isoformat(), @noun.updated_at.isoformat())
        count += 1
    return count
'''
_MERGE = '''
def merge_@nouns(kept: @Noun, removed: @Noun) -> @Noun:
    """Merge two records of the same @noun: the kept one wins, empty fields are filled from the removed one."""
    return replace(
        kept,
        name=kept.name or removed.name,
        @field=kept.@field if kept.@field is not None else removed.@field,
        created_at=min(kept.created_at, removed.created_at),
        updated_at=max(kept.updated_at, removed.updated_at),
    )
'''
_TEST = """
def test_@noun_without_@field_is_refused(store: Store) -> None:
    @noun = make_@noun(store, name="first", @field=None)
    problems = check_@noun(@noun, Rules(lowest_@field=Decimal(1)))
    assert problems == []
    assert total_@field([@noun]) == Decimal(0)
    assert find_@noun(store, @noun.id) == @noun
    assert rank_@nouns([@noun], limit=0) == []
    assert export_@nouns([@noun], MemoryWriter()) == 1
    assert merge_@nouns(@noun, replace(@noun, name="other")).name == "first"
    assert change_@noun_@field(store, @noun.id, Decimal(2), NOBODY).@field == Decimal(2)
"""
_TEST_LOOKUP = """
def test_@noun_is_found_by_its_id(store: Store) -> None:
    @noun = make_@noun(store, name="second")
    assert find_@noun(store, @noun.id) == @noun
    assert find_@noun(store, "no such id") is None
"""
_TEST_NAME = """
def test_@noun_with_a_long_name_is_refused(store: Store) -> None:
    @noun = make_@noun(store, name="x" * 201)
    assert check_@noun(@noun, Rules()) == ["name does not fit the label"]
"""
# Source files are made of the first seven.
TEMPLATES = (_FIND, _TOTAL, _CHECK, _RANK, _CHANGE, _EXPORT, _MERGE, _TEST, _TEST_LOOKUP, _TEST_NAME)
SOURCE, TEST, TEST_LOOKUP, TEST_NAME = range(7), 7, 8, 9

_HEAD = '''"""@title"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from logging import getLogger

from shop.base import Actor, Missing, RowWriter, Rules, Store
from shop.records import @records

CENT = Decimal("0.01")
log = getLogger(__name__)

'''
_HEAD_OF_TESTS = '"""@title"""\n\nfrom decimal import Decimal\n\nfrom shop.testing import *\n\n'


@dataclass(frozen=True, slots=True)
class Function:
    """One function of a file."""

    name: str
    text: str

    @property
    def signature(self) -> str:
        """Its first line."""
        return self.text.lstrip("\n").partition("\n")[0]


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file. ``text`` is its whole text."""

    path: str
    head: str
    functions: tuple[Function, ...]

    @property
    def text(self) -> str:
        """Its content."""
        return self.head + "\n".join(function.text for function in self.functions)

    def with_change(self, index: int, old: str, new: str) -> "SourceFile":
        """The file with a text of one function replaced, once."""
        function = self.functions[index]
        assert old in function.text, f"{function.name} has no such line"
        changed = replace(function, text=function.text.replace(old, new, 1))
        return replace(self, functions=(*self.functions[:index], changed, *self.functions[index + 1 :]))

    def with_function(self, function: Function) -> "SourceFile":
        """The file with a further function at its end."""
        return replace(self, functions=(*self.functions, function))


def source_file(
    path: str, title: str, nouns: Sequence[int], templates: Sequence[int] = SOURCE, head: str = _HEAD
) -> SourceFile:
    """A file with one function for each pair of noun and template (by their numbers)."""
    names = [NOUNS[i % len(NOUNS)] for i in nouns]
    records = ", ".join(sorted({noun.capitalize() for noun, _ in names}))
    begun = head.replace("@title", title).replace("@records", records)
    return SourceFile(path, begun, tuple(_functions(names, [TEMPLATES[i] for i in templates])))


def file_of_tests(path: str, title: str, nouns: Sequence[int]) -> SourceFile:
    """A file of tests."""
    return source_file(path, title, nouns, (TEST,), _HEAD_OF_TESTS)


def function(template: int, noun: int) -> Function:
    """One function that is in no file yet."""
    return next(_functions([NOUNS[noun % len(NOUNS)]], [TEMPLATES[template]]))


def _functions(names: Sequence[tuple[str, str]], templates: Sequence[str]) -> Iterator[Function]:
    for noun, field in names:
        for template in templates:
            text = template.replace("@nouns", noun + "s").replace("@noun", noun)
            text = text.replace("@Noun", noun.capitalize()).replace("@field", field)
            yield Function(text.partition("def ")[2].partition("(")[0], text)
