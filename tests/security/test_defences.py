"""The table of defences names what there is: ``make defences`` removes each of them and sees that a test fails."""

from tests.examples import for_every
from tests.patching import holder_of
from tests.security.defences import DEFENCES, Defence, cases_of


@for_every(DEFENCES)
def test_every_defence_and_its_cases_are_there(defence: Defence) -> None:
    owner, name = holder_of(defence.where)
    assert hasattr(owner, name)
    assert all(path.exists() for path in cases_of(defence))


def test_every_defence_has_a_name_of_its_own() -> None:
    assert len({one.name for one in DEFENCES}) == len(DEFENCES)
