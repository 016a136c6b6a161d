"""Recordings become loads: dealt out to services, at their declared rate where they are highest."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from simulation.measure import recorded
from simulation.measure.recorded import RecordingRefused, read_recorded

DECLARED = {"shop/a": 40.0, "shop/b": 10.0}


def test_clients_are_dealt_out_and_scaled_to_the_declared_rate(tmp_path: Path) -> None:
    (tmp_path / "one-trace.csv").write_text("0,1,0\n600,4,0\n1200,2,0\n")
    (tmp_path / "two-trace.csv").write_text("0,3,0\n600,0,0\n1200,1.5,0\n")
    shapes = read_recorded(tmp_path, DECLARED, 0.0, 1.0)
    assert [shapes["shop/a"](at) for at in (0.0, 600.0, 900.0, 1200.0)] == [0.25, 1.0, 0.75, 0.5]
    assert [shapes["shop/b"](at) for at in (0.0, 600.0, 1200.0)] == [1.0, 0.01, 0.5]


def test_requests_are_counted_by_session(tmp_path: Path) -> None:
    lines = [{"timestamp": "3", "session_id": "x"}, {"timestamp": 700, "session_id": "x"}]
    lines += [{"timestamp": 650.5, "session_id": "x"}, {"timestamp": 20, "session_id": "y"}]
    (tmp_path / "day.jsonl").write_text("\n".join(map(json.dumps, lines)))
    shapes = read_recorded(tmp_path, DECLARED, 0.0, 1.0)
    assert (shapes["shop/a"](0.0), shapes["shop/a"](600.0), shapes["shop/b"](0.0)) == (0.5, 1.0, 1.0)


def test_hours_without_a_request_are_silent(tmp_path: Path) -> None:
    """Between two requests that are two hours apart a service has its least rate; it is not a line between them."""
    lines = [{"timestamp": 0, "session_id": "x"}, {"timestamp": 7200, "session_id": "x"}, {"timestamp": 0}]
    (tmp_path / "day.jsonl").write_text("\n".join(map(json.dumps, lines)))
    shapes = read_recorded(tmp_path, DECLARED, 0.0, 3.0)
    assert [shapes["shop/a"](at) for at in (0.0, 600.0, 3600.0, 7200.0)] == [1.0, 0.01, 0.01, 1.0]


def test_sessions_take_no_memory_for_time_in_which_they_are_silent(tmp_path: Path) -> None:
    """Two thousand requests without a session, spread over 30 years: counted where they are and nowhere else."""
    lines = (f'{{"timestamp": {number * 450_000}}}' for number in range(2_000))
    (tmp_path / "long.jsonl").write_text("\n".join(lines))
    tracemalloc.start()
    try:
        shapes = read_recorded(tmp_path, DECLARED, 0.0, 744.0)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert shapes["shop/a"](0.0) == 1.0
    assert most_bytes < 8 * 2**20


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a-trace.csv", b"0,much\n", r"a-trace.csv:1: rate 'much' is not allowed: a number from 0 to 100,000"),
        ("a-trace.csv", b"0,1\n600,nan\n", r"a-trace.csv:2: rate 'nan' is not allowed"),
        ("a-trace.csv", b"0,1\n600,inf\n", r"a-trace.csv:2: rate 'inf' is not allowed"),
        ("a-trace.csv", b"0,1\n600,-1\n", r"a-trace.csv:2: rate '-1' is not allowed"),
        ("a-trace.csv", b"-5,1\n600,1\n", r"a-trace.csv:1: seconds '-5' is not allowed"),
        ("a-trace.csv", b"0,1\n1748736000,1\n", r"a-trace.csv:2: seconds '1748736000' .* counted from the start"),
        ("a-trace.csv", b"0,1\n600\n", r"a-trace.csv:2: each row must begin with seconds,rate"),
        ("a-trace.csv", b"0,1\n600,1\n900,1\n", r"a-trace.csv:3: seconds 900 must be 1200; the rows of all"),
        ("a-trace.csv", b"600,1\n600,1\n", r"a-trace.csv:2: seconds 600 must be at least 1 beyond 600"),
        ("a-trace.csv", b"0,1\n", r"a-trace.csv needs at least two rows .* it has 1"),
        ("a-trace.csv", b"0,1\n600," + b"1" * 200_000, r"a-trace.csv:2: the row cannot be read: field larger"),
        ("a-trace.csv", b"0,1\n600,\xff\n", r"a-trace.csv:2: the line is not UTF-8"),
        ("a.jsonl", b'{"session_id": "x"}\n', r"a.jsonl:1: a line needs a timestamp"),
        ("a.jsonl", b'{"timestamp": 1}\n[1]\n', r"a.jsonl:2: a line needs a timestamp"),
        ("a.jsonl", b'{"timestamp": -1}\n', r"a.jsonl:1: timestamp '-1' is not allowed: a number from 0 to"),
        ("a.jsonl", b'{"timestamp": NaN}\n', r"a.jsonl:1: timestamp 'nan' is not allowed"),
        ("a.jsonl", b'{"timestamp": 1e999}\n', r"a.jsonl:1: timestamp 'inf' is not allowed"),
        ("a.jsonl", b'{"timestamp": 1748736000}\n', r"a.jsonl:1: timestamp '1748736000' .* counted from the start"),
        ("a.jsonl", b'{"timestamp": 1}\n{"x": "\xff"}\n', r"a.jsonl:2: the line is not UTF-8"),
        ("a.jsonl", b"[" * 100_000, r"a.jsonl:1: a line needs a timestamp"),
    ],
)
def test_a_fault_is_named_with_its_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RecordingRefused, match=message):
        read_recorded(tmp_path, DECLARED, 0.0, 1.0)


def test_clients_with_other_steps_are_refused(tmp_path: Path) -> None:
    """Their sum would go up and down with the rows that only some of them have."""
    (tmp_path / "a-trace.csv").write_text("0,1\n600,1\n1200,1\n")
    (tmp_path / "b-trace.csv").write_text("0,1\n300,1\n600,1\n")
    with pytest.raises(RecordingRefused, match=r"b-trace.csv:2: seconds 300 must be 600; .* as .*a-trace.csv begins"):
        read_recorded(tmp_path, DECLARED, 0.0, 1.0)
    (tmp_path / "b-trace.csv").write_text("300,1\n900,1\n")
    with pytest.raises(RecordingRefused, match=r"b-trace.csv:1: seconds 300 is between two steps"):
        read_recorded(tmp_path, DECLARED, 0.0, 1.0)


def test_a_folder_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds for all files together, and for a line that does not end."""
    monkeypatch.setattr(recorded, "MOST_RATES_BYTES", 2 * 2**20)
    (tmp_path / "a-trace.csv").write_text("0,1\n600,1\n")
    (tmp_path / "b-trace.csv").write_bytes(b"0" * 2 * 2**20)
    with pytest.raises(RecordingRefused, match=r"b-trace.csv:1: the recordings of .* are over 2 MB"):
        read_recorded(tmp_path, DECLARED, 0.0, 1.0)


def test_what_cannot_be_played_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(RecordingRefused, match=r"no \*-trace.csv"):
        read_recorded(tmp_path, DECLARED, 0.0, 1.0)
    with pytest.raises(RecordingRefused, match=r"missing is not a folder"):
        read_recorded(tmp_path / "missing", DECLARED, 0.0, 1.0)
    (tmp_path / "one-trace.csv").write_text("0,1\n600,1\n")
    with pytest.raises(RecordingRefused, match=r"no load for shop/b from hour 0 to 1; it has 1 clients"):
        read_recorded(tmp_path, DECLARED, 0.0, 1.0)
