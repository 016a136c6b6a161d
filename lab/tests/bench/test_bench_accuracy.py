"""`gpuwright bench accuracy` refuses before it measures what it cannot do."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.main import main


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--topic", "weather"), "--topic weather is not one of bursts, factors, forecast, interference, latency"),
        (("--topic", "factors", "--plot", "a.png"), "--plot draws the topic latency, which is not measured"),
        (("--llm", "--plot", "a.png"), "measured are inferno, logs, predictor, silicon"),
        (("--topic", "latency"), "v100_sm_quota_batch_latency"),
    ],
)
def test_what_cannot_be_measured_or_drawn_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], why: str
) -> None:
    assert main(["bench", "accuracy", "--data", str(tmp_path), *words]) == 2
    assert why in capsys.readouterr().err
