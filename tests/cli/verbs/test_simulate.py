"""`simulate` from files alone: what it refuses, what it prints and writes, and that a killed run leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from select import select
from typing import Any

import pytest

from app.postgres.leftover import pid_in_file, servers_on
from cli.main import main
from cli.verbs import simulate
from tests.cli.offline import FLEET, ROOT
from tests.support.patience import patience, until

HEADER = "seconds,service,ratePerSecond\n"
LOOK_SECONDS = 3.0  # in which whatever removes a folder has looked at it
OF_A_SIMULATION = """\
import time
from simulation.own_database import own_database
with own_database("gpuwright-simulate-", lambda line: None):
    print("", flush=True)
    time.sleep(3600)
"""
OF_A_START = """\
from cli.quiet import end_by_signals
from simulation.own_database import own_database
with end_by_signals(), own_database("gpuwright-simulate-", lambda line: None):
    pass
"""
OF_A_BENCH = """\
import time
from cli.bench.system import own_system
with own_system(lambda line: None) as system:
    print(system.server_pids[0], flush=True)
    time.sleep(3600)
"""


@pytest.fixture
def fleet(tmp_path: Path) -> str:
    (tmp_path / "fleet.yaml").write_text(FLEET)
    return str(tmp_path / "fleet.yaml")


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["simulate", *words]) == 2
    return capsys.readouterr().err


def without_nodes(files: str) -> str:
    return "---\n".join(part for part in files.split("---\n") if "kind: Node\n" not in part)


def test_bad_rates_are_named_with_file_line_and_what_is_allowed(
    fleet: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = tmp_path / "rates.csv"
    rates.write_text(HEADER + "0,shop/search,-3\n60,shop/lost,1\n")
    complaint = refused(capsys, "-f", fleet, "--rates", str(rates))
    assert f"2 faults in {rates}" in complaint
    assert f"{rates}:2: ratePerSecond '-3' is not allowed: a number from 0 to 100,000" in complaint
    assert f"{rates}:3: service 'shop/lost' is not declared in the manifests; declared: shop/search" in complaint
    trace = tmp_path / "trace.csv"
    trace.write_text("seconds,service\n3,shop/search\n-1,shop/search\n")
    refusal = f"{trace}:3: seconds '-1' is not allowed: a number from 0 to 1,000,000,000, counted from the start"
    assert refusal in refused(capsys, "-f", fleet, "--requests", str(trace))
    trace.write_text("seconds,service\n" + "-1,shop/search\n" * 30)
    assert f"the first 20 faults in {trace}" in refused(capsys, "-f", fleet, "--requests", str(trace))
    trace.write_text("seconds,service\n4000,shop/search\n")
    assert f"no request of {trace} is within --hours 1" in refused(capsys, "-f", fleet, "--requests", str(trace))


def test_what_cannot_be_simulated_is_refused_before_it_starts(
    fleet: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    allowed = "is not allowed: 0.1 to 744; figures count from minute 5 on"
    for hours in ("0.05", "0.0834", "900"):
        assert f"--hours {hours} {allowed}" in refused(capsys, "-f", fleet, "--hours", hours)
    assert "needs a Node with purchase spot" in refused(capsys, "-f", fleet, "--reclaim-every", "5")
    assert "is too often: at least 1 minute" in refused(capsys, "-f", fleet, "--reclaim-every", "0.5")
    assert "needs a Node or a Pool with purchase spot" in refused(capsys, "-f", fleet, "--storm-every", "20")
    assert "is too often: at least 15 minutes" in refused(capsys, "-f", fleet, "--storm-every", "5")
    spot = f"{tmp_path}/spot.yaml"
    Path(spot).write_text(FLEET.replace("gpus: 2", "gpus: 2, purchase: spot", 1))
    short = "--hours 1 is too short for --storm-every 60: the first storm ends after 1.17 hours"
    assert short in refused(capsys, "-f", spot, "--storm-every", "60")
    assert "--storm-share needs --storm-every" in refused(capsys, "-f", fleet, "--storm-share", "0.5")
    twice = ("--storm-every", "20", "--reclaim-every", "20")
    assert "both take spot nodes; give one" in refused(capsys, "-f", fleet, *twice)
    assert f"cannot read {tmp_path}/none.csv" in refused(capsys, "-f", fleet, "--rates", f"{tmp_path}/none.csv")
    assert "--gap-cv 20 is not allowed: 0.1 to 10" in refused(capsys, "-f", fleet, "--gap-cv", "20")
    trace = ("--requests", "x.csv", "--gap-cv", "2")
    assert "--requests plays each at its own time; give one" in refused(capsys, "-f", fleet, *trace)
    both = ("--rates", "x.csv", "--load", "wave")
    assert "not allowed with argument --rates" in refused(capsys, "-f", fleet, *both)
    assert "give one of the two" in refused(capsys, "-f", fleet, "--no-comparison", "--out", str(tmp_path / "out"))
    assert "'calm' is not known" in refused(capsys, "-f", fleet, "--load", "calm")
    (tmp_path / "file").touch()
    assert f"cannot write to the folder {fleet}/out" in refused(capsys, "-f", fleet, "--out", f"{fleet}/out")
    (tmp_path / "latin.csv").write_bytes(b"\xef\xbb\xbfseconds,service,ratePerSecond\n0,caf\xe9,1\n")
    assert "is not UTF-8: byte 0xe9 at offset 38" in refused(capsys, "-f", fleet, "--rates", f"{tmp_path}/latin.csv")
    (tmp_path / "empty.yaml").write_text(FLEET.partition("---\napiVersion: gpuwright/v1\nkind: Service")[0])
    assert "declare no Service" in refused(capsys, "-f", f"{tmp_path}/empty.yaml")
    (tmp_path / "bare.yaml").write_text(without_nodes(FLEET))
    assert "no Node is declared in the files" in refused(capsys, "-f", f"{tmp_path}/bare.yaml")
    (tmp_path / "busy.yaml").write_text(FLEET.replace("ratePerSecond: 20", "ratePerSecond: 100001"))
    assert "at most 100,000 are simulated" in refused(capsys, "-f", f"{tmp_path}/busy.yaml")
    (tmp_path / "wrong.yaml").write_text(FLEET.replace("pricePerHour: 2", "pricePerHour: -2"))
    assert "1 fault in" in refused(capsys, "-f", f"{tmp_path}/wrong.yaml")


def test_a_truth_that_cannot_be_is_refused(fleet: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--truth measured needs --data" in refused(capsys, "-f", fleet, "--truth", "measured")
    missing = refused(capsys, "-f", fleet, "--truth", "measured", "--data", str(tmp_path))
    assert f"cannot read {tmp_path}/hasgpu/" in missing
    assert "csv: No such file or directory\n" in missing
    assert "--profiles measured needs --truth" in refused(capsys, "-f", fleet, "--profiles", "measured")
    assert "--truth-seed 3 needs --truth made or measured" in refused(capsys, "-f", fleet, "--truth-seed", "3")
    assert "--data needs --truth measured" in refused(capsys, "-f", fleet, "--truth", "made", "--data", str(tmp_path))
    assert "'mine' is not known" in refused(capsys, "-f", fleet, "--truth", "mine")


def test_language_models_have_the_planners_truth_alone(capsys: pytest.CaptureFixture[str]) -> None:
    models = str(ROOT / "examples/language-models.yaml")
    complaint = refused(capsys, "-f", models, "--truth", "made")
    assert "shop/assistant promises times of tokens; --truth made does not simulate language models" in complaint


@pytest.mark.slow
def test_a_run_prints_its_figures_writes_its_files_and_leaves_no_folder(
    fleet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir(mode=0o755)
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    rates = tmp_path / "rates.csv"
    rates.write_text(HEADER + "0,shop/search,20\n360,shop/search,25\n")
    words = ["--rates", str(rates), "--hours", "0.1", "--work", "1", "--out", str(tmp_path / "out")]
    assert main(["simulate", "-f", fleet, *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["heldPerHour"] == found["plannedPerHour"] == found["freshPerHour"] == 4  # both GPUs of its node
    assert found["requests"] > 500
    assert found["attainment"]["shop/search"]["share"] > 0.9
    assert json.loads((tmp_path / "out" / "simulation.json").read_text()) == found
    costs = (tmp_path / "out" / "costs.csv").read_text().splitlines()
    assert costs[0].startswith("seconds,heldPerHour,plannedPerHour,freshPerHour,boundPerHour")
    assert costs[1].startswith("300.0,4.0,4.0,4.0,")
    assert (tmp_path / "out" / "costs.svg").read_text().startswith("<?xml")
    assert list(scratch.iterdir()) == []


def test_the_table_for_people_has_services_costs_and_counts(capsys: pytest.CaptureFixture[str]) -> None:
    peer = {"perHour": 4.0, "servedShare": 0.71, "mostGpus": 3}
    figures: dict[str, Any] = {f"{name}PerHour": 2.0 for name in simulate.COSTS} | {"boundPerHour": 0.0}
    figures |= {"attainment": {"shop/a": {"share": 0.99512, "worstHour": 0.98}}, "plans": 12}
    figures |= {"changes": {"start": 3, "stop": 1}, "peers": dict.fromkeys(simulate.PEERS, peer)}
    simulate._show(figures, {"shop/a": 99.0}, "CHF")
    shown = capsys.readouterr().out.splitlines()
    assert shown[1].split() == ["shop/a", "99.51", "%", "98.00", "%", "99", "%", "missed"]
    assert shown[3].split() == ["COST", "AN", "HOUR", "CHF", "HELD", "/", "IT"]
    assert [line.split() for line in shown[4:6]] == [["held", "2.0000", "1.000"], ["planned", "2.0000", "1.000"]]
    assert shown[7].split() == ["bound", "0.0000", "-"]
    assert " ".join(shown[10].split()) == "static plan for the peak, serves 71.0 % on 3 GPUs 4.0000 0.500"
    assert shown[-2].split() == ["plans", "12"]
    assert shown[-1].endswith(" start 3, stop 1")


@pytest.mark.slow
def test_a_minute_after_the_warm_up_is_enough_for_all_figures(fleet: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "-f", fleet, "--hours", "0.1", "--work", "1", "-v", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["peers"]["staticPeak"]["perHour"] > 0


@pytest.mark.slow
def test_a_trace_without_a_comparison_has_a_table_of_what_the_run_cost(
    fleet: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("seconds,service\n" + "".join(f"{number / 20},shop/search\n" for number in range(8000)))
    words = ["--requests", str(trace), "--hours", "0.1", "--work", "1", "--no-comparison"]
    assert main(["simulate", "-f", fleet, *words]) == 0
    printed = capsys.readouterr()
    assert "800 of 8,000 requests are left out: they are beyond --hours 0.1" in printed.err
    shown = {line.split()[0]: line.split()[1:] for line in printed.out.splitlines() if line}
    assert {"held", "planned", "changes", "energyKwh", "utilisation"} <= shown.keys()
    assert shown["jobs"] == ["done", "0,", "meanCompletionSeconds", "-"]
    assert {"fresh", "bound", "autoscaling"} & shown.keys() == set()


@pytest.mark.slow
@pytest.mark.parametrize("program", [OF_A_SIMULATION, OF_A_BENCH], ids=["simulate", "bench"])
def test_a_killed_run_leaves_no_process_port_or_folder(tmp_path: Path, program: str) -> None:
    tmp_path.chmod(0o755)
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    holder = subprocess.Popen(
        [sys.executable, "-c", program], env=environment, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert holder.stdout
        servers = [int(word) for word in holder.stdout.readline().split()]
        (folder,) = tmp_path.iterdir()
        postgres = pid_in_file(folder / "postgres")
        assert postgres
        running = [os.pidfd_open(pid) for pid in (postgres, *servers)]
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    for handle in running:
        with os.fdopen(handle, "rb") as process:
            assert select([process], [], [], patience())[0] == [process]  # it ends, and with it its port
    until(lambda: not folder.exists(), "its folder is deleted")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_ends_while_its_database_is_created_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    tmp_path.chmod(0o755)
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    holder = subprocess.Popen(
        [sys.executable, "-c", OF_A_START], env=environment, cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True
    )
    creator, segments = stopped_creator(tmp_path)
    holder.send_signal(number)
    time.sleep(LOOK_SECONDS)
    os.kill(creator, signal.SIGCONT)
    holder.wait()

    def left() -> list[Path]:
        return [*tmp_path.iterdir(), *(path for segment in segments if (path := Path(segment)).exists())]

    until(lambda: left() == [], left)


def stopped_creator(folder: Path) -> tuple[int, set[str]]:
    """Stops a server that creates a database in the folder, and returns it with its shared memory.

    Some of them live for a moment only: each is stopped first and looked at then.
    """
    began = time.monotonic()
    while time.monotonic() - began < patience():
        for creator in (pid for inner in folder.glob("*/postgres.new.*") for pid in servers_on(inner)):
            with suppress(ProcessLookupError):
                os.kill(creator, signal.SIGSTOP)
                if segments := shared_memory(creator):
                    return creator, segments
                os.kill(creator, signal.SIGCONT)
    raise AssertionError("no server was seen that creates a database")


def shared_memory(pid: int) -> set[str]:
    """Returns the files of the shared memory that a process uses with others."""
    try:
        words = Path(f"/proc/{pid}/maps").read_text().split()
    except OSError:
        return set()  # it has just ended
    return {word for word in words if word.startswith("/dev/shm/PostgreSQL.")}


def test_the_verb_loads_nothing_large_before_it_knows_what_is_ordered() -> None:
    program = "import sys, cli.verbs.simulate; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=patience(), check=True
    )
    assert not {"numpy", "msgspec", "sqlalchemy", "simulation.measure.run"} & set(done.stdout.split())
