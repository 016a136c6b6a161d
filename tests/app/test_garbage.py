"""What is there is not looked at again while a process is settled, and all is as before after it."""

from __future__ import annotations

import gc

import pytest

from app.garbage import GAINED, settle_for


@pytest.mark.slow
def test_a_settled_process_collects_rarely_and_an_ended_one_as_before() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    with settle_for():
        assert gc.get_threshold()[0] == GAINED
        assert gc.get_freeze_count() > frozen
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
