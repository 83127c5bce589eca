"""The bytecode of test files, with their assertions as pytest rewrites them. In a new clone, every worker would rewrite
every file, all at the same time. This takes longer than thousands of tests. So each worker rewrites its share first."""

import os
import sys
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

FOLDER = Path(__file__).resolve().parent


def rewrite_share(config: pytest.Config) -> None:
    """Write the missing bytecode of test files, if all tests are run. Each worker does this for its share of the
    files."""
    if sys.dont_write_bytecode or [Path(given).resolve() for given in config.args] != [FOLDER]:
        return
    number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    state = config.stash[rewrite.assertstate_key]
    for path in sorted(FOLDER.rglob("test_*.py"))[number :: int(os.environ["PYTEST_XDIST_WORKER_COUNT"])]:
        written = rewrite.get_cache_dir(path) / (path.stem + rewrite.PYC_TAIL)
        if not written.exists() and rewrite.try_makedirs(written.parent):
            digest, code = rewrite._rewrite_test(path, config)
            rewrite._write_pyc(state, code, digest, written)
