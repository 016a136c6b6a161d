"""The options `--meter FILE` and `--limits SECONDS`: what each test costs, and whether it may."""

from __future__ import annotations

import os
from collections.abc import Generator
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.support.meter.again import measure_again
from tests.support.meter.clock import Clock, Cost
from tests.support.meter.tally import MOST_SECONDS, Tally

CLOCK = pytest.StashKey[Clock]()
RAN = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--meter", metavar="FILE", type=Path, help="write the CPU seconds of each test with all that it starts"
    )
    parser.addoption(
        "--limits",
        metavar="SECONDS",
        type=float,
        help="with --meter: fail a test that needs more than its mark says, and a run of all tests that needs more "
        "than this, in CPU seconds of a quick machine",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.option.limits is not None and not config.option.meter:
        raise pytest.UsageError("--limits judges what --meter FILE measures: give that, too")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    options = session.config.option
    if not options.meter or options.collectonly:
        return (yield)
    tally = Tally(options.meter)
    session.config.pluginmanager.register(tally)
    try:
        result = yield
    finally:
        tally.write()
    if options.limits is not None and tally.costs:
        _judge(session, tally, options.limits)
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if item.config.option.meter:
        _find_clock(item.config).begin()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """What several tests share is not the cost of the first of them."""
    if not request.config.option.meter or fixturedef.scope == "function":
        return (yield)
    with _find_clock(request.config).sharing():
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """The last test of a file ends what they shared."""
    if not item.config.option.meter or (nextitem is not None and nextitem.path == item.path):
        return (yield)
    with _find_clock(item.config).sharing():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if item.config.option.meter and call.when == "setup":
        item.stash[RAN] = report.passed
    if item.config.option.meter and call.when == "teardown":
        is_slow = item.get_closest_marker("slow") is not None
        cost = _find_clock(item.config).read_cost(item.nodeid, is_slow=is_slow, ran=item.stash.get(RAN, False))
        report.cost = asdict(cost)  # type: ignore[attr-defined]
    return report


def _find_clock(config: pytest.Config) -> Clock:
    """Returns this process's; a worker, which is forked, has another than its parent."""
    clock = config.stash.get(CLOCK, None)
    if clock is None or clock.pid != os.getpid():
        clock = config.stash[CLOCK] = Clock()
    return clock


def _judge(session: pytest.Session, tally: Tally, budget: float) -> None:
    """Fails tests by their names, and a run of all tests as a whole."""
    dear = tally.list_dear()
    again = measure_again([cost.name for cost in dear], session.config.rootpath) if dear else []
    for cost in dear:
        seconds = [cost.quick_seconds, *(run[cost.name] for run in again if cost.name in run)]
        if len([value for value in seconds if value > MOST_SECONDS]) > 1:
            _fail(session, cost, seconds)
    excess = tally.describe_excess(budget)
    if excess and session.config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        session.shouldfail = excess
        raise session.Failed(excess)


def _fail(session: pytest.Session, cost: Cost, seconds: list[float]) -> None:
    needed = " and ".join(f"{value:.2f}" for value in seconds)
    report = pytest.TestReport(
        nodeid=cost.name,
        location=(cost.name.partition("::")[0], None, cost.name),
        keywords={},
        outcome="failed",
        longrepr=f"needs {needed} CPU seconds of a quick machine: more than {MOST_SECONDS}, and it is not marked slow",
        when="call",
    )
    session.config.hook.pytest_runtest_logreport(report=report)
