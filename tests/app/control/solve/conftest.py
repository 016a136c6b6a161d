"""One pair of warm processes for all tests here: each test leaves them fit for the next."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.control.solve.solver import Solver


@pytest.fixture(scope="package")
def solver() -> Iterator[Solver]:
    solver = Solver(grace_seconds=60)
    yield solver
    solver.close()
