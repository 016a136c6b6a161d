"""`gpuwright profile`: at a URL, on a node, and of files; what is printed, kept, applied and refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.exits import Failed
from cli.profiling.journal import MeasurementJournal
from tests.agents.programs.serve.running import serving
from tests.app.campaigns.running import declare_model
from tests.app.campaigns.test_neighbours import agent_with_truth, declare_two
from tests.app.campaigns.test_reports import GPUS, INFERENCE, MODEL_ANALYZER, PERF_ANALYZER
from tests.cli.conftest import Run
from tests.support.agents import running_agent
from tests.support.patience import patience, until
from tests.support.server import RunningServer
from tests.support.world import gpu_type

LATENCY = "1:10=6,100=2;8:10=20,100=8"
AT_URL = ("--gpu-type", "v100-16gb", "--batches", "1,2,4,8", "--seconds", "0.1", "--accuracy", "0.5")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def journals(state: Path) -> list[Path]:
    return sorted(state.rglob("*.jsonl"))


@pytest.mark.slow
def test_a_server_at_a_url_is_measured_and_its_profile_applied(run: Run, server: RunningServer, state: Path) -> None:
    assert server.request("POST", "/api/v1/apply", [gpu_type()]).status == 200
    declare_model(server, "resnet50")
    with serving("--latency", LATENCY, "--max-batch", "8") as copy:
        done = run("profile", "resnet50/fp16", "--url", f"http://127.0.0.1:{copy.port}", *AT_URL, "--json", "--apply")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert answer["measurements"] == 4
    assert answer.keys() == {"profiles", "measurements", "seconds", "left_out_error"}
    (profile,) = answer["profiles"]
    assert profile["spec"]["latencyMs"].keys() == {"1", "2", "4", "8"}
    assert "4 of at most 4" in done.err
    assert server.request("GET", "/api/v1/profiles/resnet50-fp16-v100-16gb").json["spec"] == profile["spec"]
    assert journals(state) == []


@pytest.mark.slow
def test_killed_it_goes_on_where_it_was(run: Run, state: Path) -> None:
    with serving("--latency", "1:40;8:80", "--max-batch", "8") as copy:
        words = ["profile", "resnet50/fp16", "--url", f"http://127.0.0.1:{copy.port}", *AT_URL, "--json"]
        first = subprocess.Popen([sys.executable, "-m", "cli.main", *words], env=os.environ, stderr=subprocess.DEVNULL)
        until(lambda: any(path.read_bytes().count(b"\n") >= 3 for path in journals(state)), "two are measured")
        first.send_signal(signal.SIGKILL)
        first.wait()
        (path,) = journals(state)
        kept = path.read_bytes().split(b"\n")
        path.write_bytes(b"\n".join(kept[:3]) + b"\n" + kept[2][:20])  # and a line that was not written to its end
        done = run(*words)
    assert done.code == 0, done.err
    assert "2 settings were measured before" in done.err
    assert "3 of at most 4" in done.err and "1 of at most 4" not in done.err
    assert json.loads(done.out)["measurements"] == 4


@pytest.mark.slow
def test_measurements_are_kept_where_their_profile_cannot_be_applied(run: Run, state: Path) -> None:
    with serving("--latency", "1:5") as copy:
        words = ["profile", "resnet50/fp16", "--url", f"http://127.0.0.1:{copy.port}", *AT_URL]
        refused = run(*words, "--apply", "--server", "http://127.0.0.1:9")
        assert (refused.code, len(journals(state))) == (4, 1), refused.err
        again = run(*words)
    assert "were measured before" in again.err and again.code == 0
    assert journals(state) == []


def test_a_journal_of_something_else_is_refused(run: Run, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.write_text("{}\n")
    done = run("profile", "resnet50", "--url", "http://127.0.0.1:9", "--journal", str(journal))
    assert done.code == 2
    assert "of another measurement" in done.err


def test_an_empty_journal_is_begun_and_a_damaged_one_or_an_impossible_place_is_refused(tmp_path: Path) -> None:
    subject = {"model": "resnet50"}
    empty, damaged, file = tmp_path / "empty", tmp_path / "damaged", tmp_path / "file"
    empty.touch()
    assert MeasurementJournal(empty, subject).measured == []
    assert MeasurementJournal(empty, subject).measured == [], "its first line is written whole"
    damaged.write_bytes(empty.read_bytes() + b'"\xff"\n')
    file.touch()
    for path, why in ((damaged, "cannot be read"), (file / "journal", "Not a directory")):
        with pytest.raises(Failed, match=why):
            MeasurementJournal(path, subject)


@pytest.mark.slow
def test_a_node_is_measured_and_followed(run: Run, server: RunningServer, tmp_path: Path) -> None:
    with running_agent(server, tmp_path / "agent"):
        declare_model(server)
        effort = ("--batches", "1", "--sm", "20,50,100", "--most", "2", "--seconds", "0.1", "--accuracy", "0.5")
        done = run("profile", "tiny", "--on", "node-1/1", *effort, "--json", "--apply", "--as-draft")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert (answer["measurements"], len(answer["profiles"])) == (2, 1)
    assert "2 of at most 2: batch 1 at" in done.err
    listed = run("profile", "--list")
    assert "tiny/fp16" in listed.out and "done" in listed.out and "2/2" in listed.out
    campaign = server.request("GET", f"/api/v1/campaigns/{listed.out.splitlines()[1].split()[0]}").json
    assert campaign["nextSetting"]["smPercent"] == 50


@pytest.mark.slow
def test_a_model_that_was_declared_for_a_file_which_is_missing_is_declared_no_more(
    run: Run, server: RunningServer, tmp_path: Path
) -> None:
    with running_agent(server, tmp_path / "agent"):
        asked = ("profile", "missing", "--file", "missing.onnx", "--batches", "1", "--sm", "100", "--on")
        done = run(*asked, "node-1/1")
        assert done.code != 0
        assert "missing.onnx" in done.err
        assert "model missing is not declared any more" in done.err, done.err
        for place, why in (("no-such-node", "there is no Node no-such-node"), ("node-1/99", "there is no GPU 99")):
            done = run(*asked, place)
            assert (done.code, done.out) == (1, "")
            assert why in done.err
            assert "is declared" not in done.err, "nothing is declared for a place that is not there"
        assert server.request("GET", "/api/v1/models/missing").status == 404


@pytest.mark.slow
def test_models_are_measured_beside_each_other_and_all_their_profiles_applied(
    run: Run, server: RunningServer, tmp_path: Path
) -> None:
    with agent_with_truth(server, tmp_path / "agent"):
        declare_two(server, ("left", "right"))
        effort = ("--batches", "4", "--sm", "30,60", "--seconds", "0.1", "--accuracy", "0.5", "--most", "2")
        done = run("profile", "left", "--on", "node-1/0", "--neighbours", "right", *effort, "--json", "--apply")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert answer["measurements"] == 2
    assert {made["spec"]["model"] for made in answer["profiles"]} == {"left", "right"}
    assert "measures left/fp16 beside right/fp16 on node-1/0" in done.err
    assert "2 of at most 2: left batch 4 at" in done.err and "times as slow" in done.err
    declared = server.request("GET", "/api/v1/profiles").json["items"]
    assert {found["spec"]["model"] for found in declared if "pressure" in found["spec"]} == {"left", "right"}


@pytest.mark.slow
def test_a_campaign_that_is_stopped_ends_its_follower(run: Run, server: RunningServer) -> None:
    assert server.request("POST", "/api/v1/apply", [gpu_type()]).status == 200
    declare_model(server)
    spec = {"gpuType": "v100-16gb", "gpus": 1, "cpuCores": 4, "memoryGib": 16}
    node = {"apiVersion": "gpuwright/v1", "kind": "Node", "metadata": {"name": "silent"}, "spec": spec}
    assert server.request("POST", "/api/v1/apply", [node]).status == 200
    words = [sys.executable, "-m", "cli.main", "profile", "tiny", "--on", "silent"]
    follower = subprocess.Popen(words, env=os.environ, stderr=subprocess.PIPE, text=True)

    def live() -> list[Any]:
        items = server.request("GET", "/api/v1/campaigns").json["items"]
        return [item for item in items if item["node"] == "silent"]

    until(lambda: bool(live()), "it is asked for")
    done = run("profile", "--stop", live()[0]["id"])
    assert (done.code, done.out) == (0, f"campaign {live()[0]['id']} is stopped\n")
    assert follower.wait(patience()) == 1
    assert follower.stderr
    assert "stopped: stopped by" in follower.stderr.read()


def test_reports_of_other_tools_become_a_profile(run: Run, tmp_path: Path) -> None:
    (tmp_path / "b1.csv").write_text(PERF_ANALYZER)
    (tmp_path / "b8.csv").write_text(PERF_ANALYZER.replace("3600", "14000"))
    about = ("--model", "resnet50/fp16", "--gpu-type", "v100-16gb")
    files = (str(tmp_path / "b1.csv"), str(tmp_path / "b8.csv"))
    done = run("profile", "import", *files, "--batches", "1,8", *about, "--json")
    assert done.code == 0, done.err
    latency = json.loads(done.out)["profiles"][0]["spec"]["latencyMs"]
    means = [latency[batch]["100"]["mean"] for batch in ("1", "8")]
    assert means == pytest.approx([3.75, 14.15], rel=0.05)
    (tmp_path / "ma.csv").write_text(MODEL_ANALYZER)
    done = run("profile", "import", str(tmp_path / "ma.csv"), *about, "--sm-percent", "50")
    assert done.code == 0, done.err
    assert "'50':" in done.out
    (tmp_path / "inference.csv").write_text(INFERENCE)
    (tmp_path / "gpus.csv").write_text(GPUS)
    done = run("profile", "import", str(tmp_path / "inference.csv"), str(tmp_path / "gpus.csv"), *about, "--json")
    assert done.code == 0, done.err
    spec = json.loads(done.out)["profiles"][0]["spec"]
    assert [spec["latencyMs"][batch]["100"]["mean"] for batch in ("1", "8")] == pytest.approx([8, 16], rel=0.05)
    assert spec["memoryGib"]["8"] == pytest.approx(2000e6 / 2**30, rel=1e-3)
    done = run("profile", "import", str(tmp_path / "gpus.csv"), *about)
    assert (done.code, "memory but no times" in done.err) == (2, True)


@pytest.mark.slow
def test_a_draft_is_applied_only_knowingly_and_named_wherever_it_is_seen(
    run: Run, server: RunningServer, tmp_path: Path
) -> None:
    assert server.request("POST", "/api/v1/apply", [gpu_type()]).status == 200
    declare_model(server, "wild")
    files = []
    for batch, microseconds in ((1, 3600), (2, 9000), (4, 6000), (8, 40000)):
        files.append(tmp_path / f"b{batch}.csv")
        files[-1].write_text(PERF_ANALYZER.replace("3600", str(microseconds)))
    words = ["profile", "import", *map(str, files), "--batches", "1,2,4,8"]
    words += ["--model", "wild/fp16", "--gpu-type", "v100-16gb", "--apply"]
    refused = run(*words)
    assert refused.code == 1
    assert "1 Profile is a draft, and nothing is applied: import more batches, between these; --as-draft" in refused.err
    assert "wild-fp16-v100-16gb: draft, error " in refused.err and "% (goal 10 %)" in refused.err
    assert server.request("GET", "/api/v1/profiles/wild-fp16-v100-16gb").status == 404
    (tmp_path / "draft.yaml").write_text(refused.out)
    checked = run("validate", "-f", str(tmp_path / "draft.yaml"), "--partial")
    assert (checked.code, "warning: Profile wild-fp16-v100-16gb: draft, error " in checked.err) == (0, True)
    tried = run("apply", "--dry-run", "-f", str(tmp_path / "draft.yaml"))
    assert "warning: Profile wild-fp16-v100-16gb: draft, error " in tried.err, tried.err
    accepted = run(*words, "--as-draft")
    assert accepted.code == 0, accepted.err
    assert "wild-fp16-v100-16gb: draft, error " in accepted.err
    assert "draft, error " in run("get", "profiles").out
    explained = run("explain", "profile", "wild-fp16-v100-16gb").out
    assert "times are planned with its spread until copies have shown them" in " ".join(explained.split())


@pytest.mark.slow
def test_a_draft_of_a_server_at_a_url_names_what_to_measure_next(run: Run, server: RunningServer, state: Path) -> None:
    assert server.request("POST", "/api/v1/apply", [gpu_type()]).status == 200
    declare_model(server, "resnet50")
    with serving("--latency", "1:4;2:40;4:5;8:60", "--max-batch", "8") as copy:
        at = ("--url", f"http://127.0.0.1:{copy.port}", "--gpu-type", "v100-16gb", "--seconds", "0.1")
        words = ("profile", "resnet50/fp16", *at, "--batches", "1,2,4,8", "--apply")
        refused = run(*words, "--most", "3")
        assert refused.code == 1, refused.err
        assert "(--most 6), first of all batch " in refused.err
        assert len(journals(state)) == 1, "what was measured is kept"
        again = run(*words)
        assert "3 settings were measured before" in again.err
        assert "all its settings are measured" in again.err, again.err


@pytest.mark.parametrize(
    ("words", "needle"),
    [
        ((), "name a model"),
        (("resnet50",), "--on NODE[/GPU]"),
        (("Resnet!", "--on", "node-1"), "use MODEL or MODEL/VARIANT"),
        (("resnet50", "--on", "node-1/x"), "use NODE or NODE/INDEX"),
        (("resnet50", "more", "--on", "node-1"), "one word too many"),
        (("resnet50", "--on", "node-1", "--url", "http://h:1"), "not allowed with"),
        (("resnet50", "--url", "h:1"), "http://HOST:PORT"),
        (("resnet50", "--url", "http://127.0.0.1:9", "--sm", "10"), "--sm is for --on"),
        (("resnet50", "--on", "node-1", "--accuracy", "2"), "up to 1"),
        (("resnet50", "--on", "node-1", "--batches", "1,x"), "whole numbers"),
        (("resnet50", "--on", "node-1", "--sm", "50,200"), "200 is no share of a GPU's SMs; allowed: 1..100"),
        (("resnet50", "--on", "node-1", "--seconds", "61"), "seconds from 0 to 60"),
        (("resnet50", "--url", "http://127.0.0.1:9", "--batches", "1,512"), "--batches: 512 is outside 1..256"),
        (("resnet50", "--on", "node-1", "--journal", "x"), "--journal is for --url; --on does not read it"),
        (("resnet50", "--url", "http://127.0.0.1:9", "--neighbours", "bert"), "--neighbours is for --on"),
        (("predict", "x.yaml", "--gpu-type", "l4"), "--gpu-type is for --url, import, neighbours; predict does not"),
        (("neighbours", "x.csv", "--apply"), "--apply is for --on, --url, import, predict; neighbours does not"),
        (("--list", "--seconds", "0"), "--seconds is for --on, --url; --list does not read it"),
        (("import", "x.csv", "--as-draft"), "--as-draft needs --apply"),
        (("--on", "node-1"), "name a model"),
        (("import", "x.csv", "--model", "m", "--tokens-per-iteration", "8"), "needs --parallel GPUS"),
        (("import",), "name the files"),
        (("import", "x.csv"), "--model"),
        (("import", "x.csv", "--model", "m", "--gpu-type", "g"), "x.csv cannot be read"),
        (("import", "x.csv", "--model", "m", "--gpu-type", "g", "--batches", "1,2"), "for 1 files"),
        (("import", "x.csv", "--model", "m", "--gpu-type", "g", "--batches", "512"), "512 is outside 1..256"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(run: Run, words: tuple[str, ...], needle: str) -> None:
    done = run("profile", *words)
    assert done.code == 2, done.err
    assert needle in done.err
    assert len(done.err.splitlines()) == 1


def test_a_url_where_nobody_listens(run: Run) -> None:
    done = run("profile", "resnet50", "--url", "http://127.0.0.1:9")
    assert done.code == 4
    assert "did not answer" in done.err
