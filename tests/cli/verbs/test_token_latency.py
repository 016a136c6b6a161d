"""`gpuwright latency --iteration`, as a person and as a machine call it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.main import main

COST = "baseMs: 5\ntokenMs: 0.02\nweightsMs: 8\nsequenceMs: 0.02\nkvTokenMs: 0.00002\npromptPairMs: 0.0000001\n"
LENGTHS = ("--input-mean", "1155", "--output-mean", "211")
PROMISE = ("--ttft-ms", "1000", "--tpot-ms", "30", "--percentile", "99")
LIMITS = ("--sequences", "128", "--kv-tokens", "400000")
Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    def asked(*words: str, cost: str = COST) -> tuple[int, str, str]:
        file = tmp_path / "cost.yaml"
        file.write_text(cost)
        code = main(["latency", "--iteration", str(file), *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return asked


@pytest.mark.slow
def test_a_machine_reads_a_rate_that_the_judge_accepts(ask: Ask) -> None:
    code, out, err = ask(*LENGTHS, *PROMISE, *LIMITS, "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert set(found) == {"ratePerSecond", "ttftMs", "tpotMs", "meanSequences", "busyShare"}
    assert found["ttftMs"] <= 1000
    assert found["tpotMs"] <= 30
    rate = found["ratePerSecond"]
    code, out, _ = ask(*LENGTHS, *PROMISE, *LIMITS, "--rate", f"{rate}", "--json")
    judged = json.loads(out)
    assert (code, judged["kept"], judged["preemptions"]) == (0, True, 0)
    assert judged["meanSequences"] == pytest.approx(found["meanSequences"], rel=0.05)
    code, out, _ = ask(*LENGTHS, *PROMISE, *LIMITS, "--rate", f"{rate / 0.85}", "--json")
    assert (code, json.loads(out)["kept"]) == (1, False)


def test_a_person_reads_a_line_for_each_figure(ask: Ask) -> None:
    code, out, _ = ask(*LENGTHS, *PROMISE, *LIMITS, "--prefix-share", "0.5", "--tokens-per-iteration", "512")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == [
        "ratePerSecond", "ttftMs", "tpotMs", "meanSequences", "busyShare",
    ]  # fmt: skip


@pytest.mark.slow
def test_two_data_ranks_carry_twice_as_much_and_less_in_step(ask: Ask) -> None:
    rates = [
        json.loads(ask(*LENGTHS, *PROMISE, *LIMITS, *ranks, "--json")[1])["ratePerSecond"]
        for ranks in ((), ("--data-ranks", "2", "--experts"), ("--data-ranks", "2"))
    ]
    assert rates[0] < rates[1] < rates[2]
    assert rates[2] > 1.9 * rates[0]


def test_every_wrong_argument_and_coefficient_is_named(ask: Ask) -> None:
    code, out, err = ask("--percentile", "40", "--batch", "3", *LENGTHS)
    assert (code, out) == (2, "")
    for fault in (
        "--batch is not for --iteration", "--ttft-ms is missing", "--kv-tokens is missing",
        "--percentile 40 is outside 50..99.9",
    ):  # fmt: skip
        assert fault in err
    code, _, err = ask(*LENGTHS, *PROMISE, *LIMITS, cost="baseMs: fast\nspeed: 3\n")
    assert code == 2
    for fault in ("speed is unknown; allowed are baseMs", "tokenMs is missing", "baseMs 'fast' is not a number"):
        assert fault in err
    assert "baseMs and tokenMs are both 0" in ask(*LENGTHS, *PROMISE, *LIMITS, cost="{baseMs: 0, tokenMs: 0}")[2]
    assert "baseMs -1.0 is not a finite number" in ask(*LENGTHS, *PROMISE, *LIMITS, cost="{baseMs: -1, tokenMs: 0}")[2]
    assert "one mapping" in ask(*LENGTHS, *PROMISE, *LIMITS, cost="[1, 2]")[2]
    assert "--output-p95 2110.0 is outside 211..816" in ask(*LENGTHS, *PROMISE, *LIMITS, "--output-p95", "2110")[2]


def test_flags_of_a_language_model_need_its_coefficients(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["latency", "--percentile", "99", "--batch", "4", "--ttft-ms", "3"]) == 2
    err = capsys.readouterr().err
    assert "--exec-ms is missing" in err
    assert "--ttft-ms needs --iteration" in err
