"""`gpuwright latency`, as a person and as a machine call it."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from cli.main import main

QUESTION = ("latency", "--batch", "8", "--exec-ms", "20", "--percentile", "98")


def called(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(words)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_machine_reads_the_rate_and_its_timeout(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = called([*QUESTION, "--slo-ms", "60", "--json"], capsys)
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert set(found) == {"ratePerSecond", "batchTimeoutMs"}
    assert found["ratePerSecond"] == pytest.approx(0.852 * 400, rel=5e-3)
    assert found["batchTimeoutMs"] == 0.0


def test_a_person_reads_load_and_latency_too(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called([*QUESTION, "--slo-ms", "39.5"], capsys)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["rate", "batch", "load", "latency"]
    assert "19.5 ms" in out


def test_bursts_take_a_part_of_the_rate_or_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    rates = []
    for burstiness in ("1", "2", "4"):
        _, out, _ = called([*QUESTION, "--slo-ms", "60", "--burstiness", burstiness, "--json"], capsys)
        rates.append(json.loads(out)["ratePerSecond"])
    assert rates[0] == pytest.approx(0.852 * 400, rel=5e-3)
    assert rates[0] > rates[1] > rates[2] > 0.0
    code, out, _ = called([*QUESTION, "--slo-ms", "60", "--burstiness", "50"], capsys)
    assert (code, out) == (
        0, "rate           0: one burst of arrivals with a dispersion of 50 is more than it serves within 60 ms\n"
    )  # fmt: skip
    assert "--burstiness 51 is outside 1..50" in called([*QUESTION, "--slo-ms", "60", "--burstiness", "51"], capsys)[2]


def test_an_slo_that_no_batch_meets_is_an_answer_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called([*QUESTION, "--slo-ms", "19"], capsys)
    assert code == 0
    assert "a batch alone takes 20 ms, and the SLO is 19 ms" in out
    code, out, _ = called([*QUESTION, "--slo-ms", "19", "--json"], capsys)
    assert json.loads(out) == {"ratePerSecond": 0.0, "batchTimeoutMs": 0.0}


def test_every_wrong_argument_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["latency", "--batch", "300", "--exec-ms", "0", "--slo-ms", "-1", "--percentile", "99.95"]
    code, out, err = called(words, capsys)
    assert (code, out) == (2, "")
    for flag in ("--batch 300", "--exec-ms 0 is outside 1e-6..1e12", "--slo-ms -1", "--percentile 99.95"):
        assert flag in err
    for flag, value in (("--batch", "x"), ("--batch", "1_6"), ("--exec-ms", "nan"), ("--slo-ms", "6_0")):
        code, out, err = called([*QUESTION, "--slo-ms", "60", flag, value], capsys)
        assert (code, out) == (2, "")
        assert f"argument {flag}: '{value}' is not allowed: a " in err
