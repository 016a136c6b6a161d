"""Recordings become loads: dealt out to services, at their declared rate where they are highest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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


def test_what_cannot_be_played_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(RecordingRefused, match=r"no \*-trace.csv"):
        read_recorded(tmp_path, DECLARED, 0.0, 1.0)
    (tmp_path / "one-trace.csv").write_text("0,much\n")
    with pytest.raises(RecordingRefused, match=r"one-trace.csv: each row must begin with seconds,rate"):
        read_recorded(tmp_path, DECLARED, 0.0, 1.0)
    (tmp_path / "one-trace.csv").write_text("0,1\n600,1\n")
    with pytest.raises(RecordingRefused, match=r"no load for shop/b from hour 0 to 1; it has 1 clients"):
        read_recorded(tmp_path, DECLARED, 0.0, 1.0)
    (tmp_path / "one-trace.csv").unlink()
    (tmp_path / "day.jsonl").write_text('{"session_id": "x"}\n')
    with pytest.raises(RecordingRefused, match=r"day.jsonl:1: a line needs a timestamp"):
        read_recorded(tmp_path, DECLARED, 0.0, 1.0)
