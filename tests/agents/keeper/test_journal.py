"""The journal: what was written is there after any death, and what was torn was not begun."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from agents.contract.assignments import AssignedInstance
from agents.keeper.copies import NodeCopy, Stage
from agents.keeper.journal import Journal, JournalError
from agents.keeper.ledger import CopyLedger
from agents.runtime import Running

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def copy(name: str, stage: Stage = Stage.STARTING) -> NodeCopy:
    return NodeCopy(name, AssignedInstance("a", 0, service="s"), "GPU-a", stage, running=Running(name, 7, 8, "boot"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def kept(path: Path) -> dict[str, NodeCopy]:
    """What an agent that starts now finds."""
    journal = Journal(path)
    journal.close()
    return journal.copies


def test_the_last_word_on_each_copy_counts(path: Path) -> None:
    journal = Journal(path)
    for stage in (Stage.STARTING, Stage.VERIFYING, Stage.READY):
        journal.write(copy("a.1.1", stage))
    journal.write(copy("b.1.1"))
    journal.close()
    assert kept(path) == {"a.1.1": copy("a.1.1", Stage.READY), "b.1.1": copy("b.1.1")}


def test_case_18_a_clock_that_is_set_back_ends_no_usage_before_it_began(path: Path) -> None:
    dates = iter([NOW, NOW - timedelta(hours=1)])
    ledger = CopyLedger(Journal(path), lambda: next(dates))
    ledger.record(copy("a.1.1", Stage.VERIFYING))
    started = ledger.get("a.1.1")
    assert started is not None
    ledger.record(started.at(Stage.GONE, 9.0))
    (gone,) = ledger.accounts()
    ledger.close()
    assert (gone.started_at, gone.ended_at) == (NOW, NOW)


def test_a_journal_that_somebody_deleted_is_written_anew_and_whole(path: Path) -> None:
    journal = Journal(path)
    journal.write(copy("a.1.1", Stage.READY))
    path.unlink()
    journal.write(copy("b.1.1"))
    journal.close()
    assert kept(path) == {"a.1.1": copy("a.1.1", Stage.READY), "b.1.1": copy("b.1.1")}


def test_wherever_the_file_is_cut_it_says_what_was_whole(path: Path) -> None:
    journal = Journal(path)
    journal.write(copy("a.1.1"))
    whole = path.read_bytes()
    journal.write(copy("a.1.1", Stage.READY))
    longer = path.read_bytes()
    journal.close()
    for length in range(len(whole), len(longer) - 1):
        path.write_bytes(longer[:length])
        assert kept(path)["a.1.1"].stage is Stage.STARTING
    path.write_bytes(longer[:-1])  # all but the line feed
    assert kept(path)["a.1.1"].stage is Stage.READY


def test_it_says_when_something_was_last_recorded_and_opening_it_is_no_record(path: Path) -> None:
    first = Journal(path)
    assert first.last_written is None
    first.write(copy("a.1.1"))
    first.close()
    moment = datetime(2026, 3, 1, 12, tzinfo=UTC)
    os.utime(path, (moment.timestamp(), moment.timestamp()))
    for _ in range(3):
        again = Journal(path)
        assert again.last_written == moment
        again.close()


def test_a_line_that_was_whole_and_cannot_be_read_is_a_fault(path: Path) -> None:
    journal = Journal(path)
    journal.write(copy("a.1.1"))
    journal.close()
    path.write_bytes(b"rubbish\n" + path.read_bytes())
    with pytest.raises(JournalError, match=r"line 1, cannot be read.*gpuwright agent adopt"):
        Journal(path)


def test_a_copy_is_kept_until_its_usage_is_accounted_for(path: Path) -> None:
    journal = Journal(path)
    gone = msgspec.structs.replace(copy("a.1.1", Stage.GONE), started_at=NOW, ended_at=NOW)
    journal.write(gone)
    journal.close()
    assert kept(path) == {"a.1.1": gone}
    journal = Journal(path)
    journal.write(msgspec.structs.replace(gone, acknowledged="closed"))
    journal.close()
    assert kept(path) == {}


def test_what_the_control_plane_learned_while_a_copy_was_recorded_is_kept(path: Path) -> None:
    """A copy is recorded from what the keeper knew before the control plane's answer."""
    dates = iter(NOW + timedelta(minutes=minute) for minute in range(99))
    ledger = CopyLedger(Journal(path), lambda: next(dates))
    ledger.record(copy("a.1.1", Stage.READY))

    def record(stage: Stage, answer: tuple[int, str] | None = None) -> NodeCopy:
        known = ledger.get("a.1.1")
        assert known is not None
        if answer:
            ledger.acknowledge("a.1.1", *answer)
        ledger.record(known.at(stage, 9.0))
        found = ledger.get("a.1.1")
        assert found is not None
        return found

    assert record(Stage.SWAPPED, (0, "opened")).acknowledged == "opened"
    back = record(Stage.RETURNING, (0, "closed"))
    assert (back.spell, back.earlier, back.acknowledged, back.ended_at) == (1, (), "", None)
    ledger.acknowledge("a.1.1", 0, "opened")  # an answer that came late
    assert ledger.get("a.1.1") == back
    record(Stage.SWAPPED)
    back = record(Stage.RETURNING)
    assert [(spell.number, spell.started_at, spell.ended_at) for spell in back.earlier] == [
        (1, NOW + timedelta(minutes=2), NOW + timedelta(minutes=3))
    ]
    assert record(Stage.READY, (1, "closed")).earlier == ()
    record(Stage.SWAPPED)
    back = record(Stage.RETURNING)
    ledger.record(back.at(Stage.GONE, 9.0))
    ledger.acknowledge("a.1.1", 3, "closed")
    assert ledger.get("a.1.1") is not None, "what it held before is not told yet"
    ledger.acknowledge("a.1.1", 2, "closed")
    assert ledger.get("a.1.1") is None
    ledger.close()


def test_a_copy_that_never_ran_is_forgotten(path: Path) -> None:
    journal = Journal(path)
    journal.write(copy("a.1.1"))
    journal.write(copy("a.1.1", Stage.GONE))
    assert journal.copies == {}


def test_it_does_not_grow_for_ever(path: Path) -> None:
    journal = Journal(path)
    for _ in range(6000):
        journal.write(copy("a.1.1", Stage.READY))
    journal.close()
    assert path.stat().st_size < 1_100_000
    assert kept(path)["a.1.1"].stage is Stage.READY


def test_thousands_of_copies_that_are_still_needed_do_not_make_it_write_all_of_them_each_time(path: Path) -> None:
    path.write_bytes(b"".join(msgspec.json.encode(copy(f"{'x' * 90}-{n}")) + b"\n" for n in range(4000)))
    journal = Journal(path)
    whole = path.stat()
    assert whole.st_size > 1 << 20
    for n in range(100):
        journal.write(copy(f"{'x' * 90}-{n}", Stage.GONE))
    assert path.stat().st_ino == whole.st_ino
    journal.close()


def test_a_second_agent_on_the_same_folder_is_refused(path: Path) -> None:
    first = Journal(path)
    with pytest.raises(JournalError, match="another agent already uses"):
        Journal(path)
    first.close()
    Journal(path).close()
