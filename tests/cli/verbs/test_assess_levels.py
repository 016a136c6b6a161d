"""`gpuwright assess` with what sharing could save, what profiles certify, and what a campaign is worth."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from cli.main import main
from tests.clusters import demo

PROFILE = """\
apiVersion: gpuwright/v1
kind: Profile
metadata: {name: ranker-l40s}
spec:
  model: ranker
  variant: fp16
  gpuType: l40s-48gb
  latencyMs: {1: {10: 20, 30: 8, 100: 6}, 8: {10: 80, 30: 30, 100: 16}}
  memoryGib: {1: 3, 8: 4}
"""


def called(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(["assess", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.slow
def test_levels_stand_apart_and_are_in_every_form(capsys: pytest.CaptureFixture[str]) -> None:
    _, text, _ = called(["--demo", "-o", "json"], capsys)
    found = json.loads(text)
    assert (found["savings"]["level"], found["sharing"]["level"], found["sharing"]["certified"]) == ("L0", "L1", False)
    assert 0 < found["sharing"]["lowNanoPerHour"] < found["sharing"]["highNanoPerHour"] < found["nanoPerHour"]
    assert found["campaigns"][0]["nanoPerHour"] <= found["sharing"]["highNanoPerHour"]
    assert "certified" not in found
    _, manifests, _ = called(["--demo", "-o", "yaml"], capsys)
    assert "# L1, an interval and not certified: from 2.8 to 5.2 %" in manifests


@pytest.mark.slow
def test_a_profile_as_it_is_printed_certifies_what_its_workload_can_do_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ranker.yaml").write_text(PROFILE)
    code, text, _ = called(["--demo", "--profiles", str(tmp_path)], capsys)
    assert code == 0
    part = text[text.index("L2, certified with profiles: ") :]
    assert "nothing of L0 and L1 is added to it" in part
    assert "No plan saves more than" in part
    planned = next(line for line in part.splitlines() if line.startswith("shop/Deployment/ranker "))
    assert planned.split()[1] == "4"  # minReplicas
    assert "shop/Deployment/ranker" not in part[part.index("Profile ") :]  # no campaign for it


def test_faults_of_profiles_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ranker.yaml"
    file.write_text(PROFILE.replace("memoryGib: {1: 3,", "memoryGib: {2: 3,"))
    code, _, err = called(["--demo", "--profiles", str(file)], capsys)
    assert code == 2
    assert "batch 1 has a latency but no memory" in err


def test_profiles_without_loads_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = tmp_path / "objects.json"
    objects.write_text(json.dumps(list(demo.items())))
    code, _, err = called(["-f", str(objects), "--profiles", "ranker.yaml"], capsys)
    assert code == 2
    assert "give --prometheus, or --demo" in err


LANGUAGE_MODEL = """\
apiVersion: gpuwright/v1
kind: Model
metadata: {name: mistral-7b}
spec:
  variants:
  - name: fp16
    accuracy: 0.6
    llm: {weightsGib: 14, layers: 32, kvBytesPerToken: 131072, contextTokens: 8192, parallel: [1]}
---
apiVersion: gpuwright/v1
kind: Profile
metadata: {name: mistral-a100}
spec:
  model: mistral-7b
  variant: fp16
  gpuType: a100-sxm4-40gb
  overheadGib: 4
  iteration: {1: {baseMs: 3, tokenMs: 0.05, weightsMs: 10, sequenceMs: 0.02, kvTokenMs: 0.00006}}
"""
SLO = """\
- {workload: chat/mistral-7b-predictor, model: mistral-7b, ttftMs: 1500, tpotMs: 25}
- {workload: chat/llama-70b, model: llama-70b, ttftMs: 1500, tpotMs: 25}
"""


@pytest.mark.slow
def test_language_models_are_advised_on_pools_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mistral.yaml").write_text(LANGUAGE_MODEL)
    (tmp_path / "slo.yaml").write_text(SLO)
    page = tmp_path / "page.html"
    words = ["--demo", "--profiles", str(tmp_path / "mistral.yaml"), "--slo", str(tmp_path / "slo.yaml")]
    code, text, progress = called([*words, "-o", "json", "--html", str(page)], capsys)
    assert code == 0
    assert "chat/Deployment/mistral-7b-predictor: servers for 5.25 requests a second, together and apart" in progress
    rows = {row["workload"]: row for row in json.loads(text)["languageModels"]}
    assert rows["chat/LeaderWorkerSet/llama-70b"] == {
        "workload": "chat/LeaderWorkerSet/llama-70b", "size": None, "lack": "no Profile is of model llama-70b"
    }  # fmt: skip
    size = rows["chat/Deployment/mistral-7b-predictor"]["size"]
    costs = {form: size[form]["costPerHour"] for form in ("together", "parts", "apart") if size[form]}
    assert costs[size["cheapest"]] <= min(costs.values()) + 0.01
    assert set(size["apart"]["gpus"]) == {"a100-sxm4-40gb"}
    assert size["apart"]["link"]["kind"] == "nvlink"  # the sheet has it, and a node of the cluster has eight GPUs
    assert size["why"] in page.read_text()
    _, shown, _ = called(words, capsys)
    assert f"{costs['together']:.4g} USD an hour do both; " in shown
    assert "- chat/LeaderWorkerSet/llama-70b: no Profile is of model llama-70b" in shown
