"""The option `--workers`, and the loop over tests that it replaces."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

from tests.support.workers.crew import Crew
from tests.support.workers.files import files_of
from tests.support.workers.patience import find_patience


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--workers",
        type=_count,
        default=0,
        metavar="COUNT",
        help="run files of tests in so many forked workers; `cores` is one a core, 0 (the default) is in this process",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Forks workers, unless there is one file or somebody debugs."""
    options = session.config.option
    count = min(options.workers, len(files_of(session.items)))
    if count < 2 or options.collectonly or options.usepdb or options.trace:
        return None
    if session.testsfailed and not options.continue_on_collection_errors:
        raise session.Interrupted(f"{session.testsfailed} files cannot be collected")
    Crew(session, count).run()
    return True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Ends a test that hangs."""
    if item.config.getvalue("timeout") is None and not item.get_closest_marker("timeout"):
        item.add_marker(pytest.mark.timeout(find_patience(item)))
    return (yield)


def _count(text: str) -> int:
    return len(os.sched_getaffinity(0)) if text == "cores" else int(text)
