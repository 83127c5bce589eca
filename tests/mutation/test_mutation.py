"""``make mutants`` on a package of a few lines: what is tested kills its mutants, what is not tested lets them live."""

from pathlib import Path

import pytest

from tests.mutation.__main__ import ROOT, TARGETS
from tests.mutation.operators import mutants_of
from tests.mutation.run import Outcome, Target, Verdict, run, sample

SOURCE = '''"""Which of two is larger: 1 or 2?"""

import logging

_log = logging.getLogger(__name__)
_other_log = logging.getLogger("other")


def larger(one: int, other: "int") -> int:
    """The larger one."""
    _log.info("asked for %s", one)
    _other_log.info("and for %s", other)
    if one > other:
        return one
    return other


def untested(flag: bool = False) -> bool:
    while flag:
        flag = True
    return flag
'''
TESTS = """from proxy.small import larger

def test_larger():
    assert [larger(1, 2), larger(2, 1)] == [2, 2]
"""
SMALL = Target("proxy", ("tests",))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "proxy").mkdir()
    (tmp_path / "proxy/__init__.py").touch()
    (tmp_path / "proxy/small.py").write_text(SOURCE)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_small.py").write_text(TESTS)
    return tmp_path


def changes() -> list[tuple[int, str]]:
    source = SOURCE.encode()
    return [(mutant.line, mutant.shown(source)[1]) for mutant in mutants_of("proxy/small.py", source)]


def test_each_change_is_a_small_one_that_a_test_could_notice() -> None:
    assert changes() == [
        (13, "if (not (one > other)):"),
        (13, "if (one >= other):"),
        (14, "return None"),
        (15, "return None"),
        (18, "def untested(flag: bool = True) -> bool:"),
        (19, "while (not (flag)):"),
        (20, "flag = False"),
        (21, "return None"),
    ]


def test_the_packages_and_the_tests_that_judge_them_are_there() -> None:
    places = [place for target in TARGETS for place in (target.package, *target.tests)]
    assert [place for place in places if not (ROOT / place).exists()] == []


def test_every_mutant_of_this_repository_can_be_compiled() -> None:
    path = ROOT / "proxy/planner/__init__.py"
    source = path.read_bytes()
    for mutant in mutants_of(str(path), source)[::10]:
        compile(mutant.applied(source), mutant.path, "exec")


def test_a_sample_is_the_same_for_its_seed(repository: Path) -> None:
    assert sample(repository, [SMALL], 3, 1) == sample(repository, [SMALL], 3, 1)
    assert sample(repository, [SMALL], 3, 1) != sample(repository, [SMALL], 3, 2)
    assert len(sample(repository, [SMALL], 100, 1)) == len(changes())


@pytest.mark.slow
def test_a_change_that_a_test_notices_is_killed_and_the_others_survive(repository: Path) -> None:
    mutants = mutants_of("proxy/small.py", SOURCE.encode())
    seen: list[Verdict] = []
    verdicts = run(repository, [SMALL], [mutants[0], mutants[6]], 1, seen.append)
    assert [verdict.outcome for verdict in verdicts] == [Outcome.KILLED, Outcome.SURVIVED]
    assert [verdict.test for verdict in verdicts] == ["tests/test_small.py::test_larger", ""]
    assert verdicts[1].before == "flag = True"
    assert sorted(seen, key=lambda verdict: verdict.mutant.line) == verdicts
    assert (repository / "proxy/small.py").read_text() == SOURCE
