"""Copies as jobs of a real Slurm, started for these tests; skipped where its packages are not."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from agents.contract.assignments import AssignedInstance
from agents.devices.simulated.remote import Switches
from agents.host.clocks import date
from agents.node.node import LocalNode
from agents.node.reclaim_file import ReclaimFile
from agents.node.slurm_notices import SlurmNotices
from agents.run.doctor.findings import Level
from agents.run.doctor.slurm import check_slurm
from agents.run.opening import AgentOptions, open_node
from agents.runtime import CopyRuntime, ExitUndecided, Launch, LaunchError, Running, proc
from agents.runtime.slurm import SlurmRuntime
from agents.runtime.slurm_commands import SlurmAway, SlurmCommands, SlurmRefused, parse_gpus
from agents.runtime.slurm_start import SlurmStart, find_mismatch
from agents.templates import Confined, Filled
from tests.agents.runtime.conformance import SLEEPER, RuntimeConformance, launched
from tests.support.nodes import Machine, assigned, copy_of, machine, ready, running, served
from tests.support.patience import until
from tests.support.slurm import ONE_GPU, Slurm, slurm_cluster
from tests.support.trainers import EXAMPLES, TRAINER, files_of, straight_run, trainer, training_node

PAIR = "gpu:left:1,gpu:right:1,shard:left:100,shard:right:100"
NODES = {"one": ONE_GPU, "other": ONE_GPU, "pair": PAIR}
USER = 20001  # whom a user's own command runs as
MPS_SHARE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
STEPS, CANCELS = 2_000, 3


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with slurm_cluster(NODES) as slurm:
        yield slurm


def opened(folder: Path, uuids: list[str]) -> SlurmRuntime:
    commands = SlurmCommands()
    return SlurmRuntime(folder, commands, dict(zip(uuids, commands.read_gpus(list(NODES)), strict=False)), {USER})


@pytest.fixture
def runtime(slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmRuntime]:
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    runtime = opened(tmp_path / "copies", ["GPU-0", "GPU-1", "GPU-2", "GPU-3"])
    yield runtime
    for left in runtime.find():
        runtime.end(left, force=True)
    slurm.ask("scancel", "--user=root")
    until(lambda: runtime.find() == () and not slurm.ask("squeue", "--noheader"), "everything is ended")


@pytest.mark.slow
class TestConformance(RuntimeConformance):
    @pytest.fixture
    def runtime(self, runtime: CopyRuntime) -> CopyRuntime:
        return runtime

    def reopened(self, tmp_path: Path) -> CopyRuntime:
        return opened(tmp_path / "copies", ["GPU-0"])

    def begin(self, runtime: CopyRuntime, launch: Launch) -> Running:
        return super().begin(runtime, replace(launch, gpu="GPU-0", limits={MPS_SHARE: "20", **launch.limits}))


def job_of(slurm: Slurm) -> str:
    """The number of the one job that runs."""
    (number,) = slurm.ask("squeue", "--noheader", "--states=RUNNING", "--format=%A").split()
    return number


def printed(made: Machine) -> list[str]:
    """The lines with which the processes of the training begin and end."""
    logs = sorted((made.folder / "copies" / "logs").iterdir(), key=lambda path: path.stat().st_mtime)
    return [line for path in logs for line in path.read_text().splitlines() if "at step" in line]


def trains(node: LocalNode, made: Machine, job: AssignedInstance, process: int) -> bool:
    """Whether the job's process of that number has done some steps."""
    found = files_of(made, job).read()
    return ready(node, "tune-1") and len(printed(made)) == 2 * process - 1 and found is not None and found.units > 50


@pytest.mark.slow
def test_a_training_that_somebody_cancels_in_slurm_goes_on_without_repeating_a_step(
    runtime: SlurmRuntime, slurm: Slurm, tmp_path: Path
) -> None:
    job = trainer(STEPS, args={"steps": STEPS, "save": 3600, "pause": 0.001}, sm_percent=30)
    with training_node(tmp_path, TRAINER % (EXAMPLES / "plain.py")) as made:
        copies = opened(made.folder / "copies", made.uuids)
        files = files_of(made, job)
        saves = made.folder / "checkpoints"
        with running(made, runtime=copies, checkpoints=saves) as node:
            node.offer(assigned(1, job))
            until(lambda: trains(node, made, job, 1), "it trains")
            process = copy_of(node, "tune-1").running
        with running(
            made, runtime=opened(made.folder / "copies", made.uuids), incarnation=2, checkpoints=saves
        ) as node:
            node.offer(assigned(1, job))
            assert copy_of(node, "tune-1").running == process, "the next agent goes on with it"
            for number in range(CANCELS):
                until(lambda number=number: trains(node, made, job, number + 1), "it trains")  # type: ignore[misc]
                process = copy_of(node, "tune-1").running
                assert process is not None
                assert proc.read_variable(process.pid, MPS_SHARE) == "30"
                assert "gres:mps:30" in slurm.ask("squeue", "--noheader", "--format=%b")
                slurm.ask("scancel", job_of(slurm))
            until(lambda: node.keeper.exit_code("tune-1") == 0, "it has done all its steps")
        lines = printed(made)
        ends = [line.split()[-1] for line in lines[1::2]]
        begins = [line.split()[3] for line in lines[::2]]
        assert begins == ["0", *ends[:-1]], "each process goes on where the last one ended"
        assert (len(begins), ends[-1]) == (CANCELS + 1, str(STEPS))
        straight = straight_run("plain.py", STEPS, tmp_path / "straight")
        assert json.loads((files.folder / "last.json").read_text()) == json.loads((straight / "last.json").read_text())


def start_with(runtime: SlurmRuntime, copy: str, gpu: str, share: str = "") -> Launch:
    """A copy on planned GPUs: of one a share, or all whole."""
    launch = replace(launched(copy, SLEEPER), gpu=gpu, limits={MPS_SHARE: share} if share else {})
    runtime.start(launch)
    return launch


def gres_of(slurm: Slurm, runtime: SlurmRuntime, copy: str) -> tuple[str, str]:
    """What a copy's job asks for, and where it runs."""
    shown = slurm.ask("squeue", "--noheader", f"--name={runtime._name_job(copy)}", "--format=%b %N").split()
    return shown[0], shown[1] if len(shown) > 1 else ""


def await_code(runtime: SlurmRuntime, copy: Running) -> int | None:
    codes: list[int | None] = []

    def decided() -> bool:
        with suppress(ExitUndecided):
            codes.append(runtime.exit_code(copy))
        return bool(codes)

    until(decided, "Slurm knows how it ended")
    return codes[0]


@pytest.mark.slow
def test_each_copy_gets_its_planned_gpu(runtime: SlurmRuntime, slurm: Slurm) -> None:
    planned = {"a": ("GPU-0", "30"), "b": ("GPU-1", "12.5"), "c": ("GPU-2", "70"), "d": ("GPU-3", "50")}
    launches = [start_with(runtime, copy, *place) for copy, place in planned.items()]
    for launch in launches:
        until(lambda launch=launch: runtime.start(launch), "it runs")  # type: ignore[misc]
    assert {copy: gres_of(slurm, runtime, copy) for copy in planned} == {
        "a": ("gres:mps:30", "one"),
        "b": ("gres:mps:12", "other"),
        "c": ("gres:shard:left:70", "pair"),
        "d": ("gres:shard:right:50", "pair"),
    }
    assert sorted(found.copy for found in runtime.find()) == ["a", "b", "c", "d"]


@pytest.mark.slow
def test_a_copy_that_slurm_holds_back_says_why_and_is_withdrawn(runtime: SlurmRuntime, slurm: Slurm) -> None:
    first, whole = start_with(runtime, "a", "GPU-2", "30"), start_with(runtime, "b", "GPU-2,GPU-3")
    until(lambda: runtime.start(first), "it runs")
    until(lambda: runtime.start(whole) or "waits: Resources" in runtime.log_tail("b"), "it waits")
    assert gres_of(slurm, runtime, "b") == ("gres:gpu:left:1,gres:gpu:right:1", "")
    runtime.withdraw("b")
    until(lambda: "CANCELLED" in slurm.ask("squeue", "--noheader", "--states=all", "--format=%T"), "it is cancelled")
    assert runtime.log_tail("b") == ""
    assert [found.copy for found in runtime.find()] == ["a"]


@pytest.mark.slow
def test_a_job_cancelled_before_its_process_runs_is_a_failed_start(runtime: SlurmRuntime, slurm: Slurm) -> None:
    slurm.ask("scontrol", "update", "nodename=one", "state=drain", "reason=test")
    launch = start_with(runtime, "a", "GPU-0", "30")
    slurm.ask("scancel", f"--name={runtime._name_job('a')}")
    slurm.ask("scontrol", "update", "nodename=one", "state=resume")
    with pytest.raises(LaunchError, match="ended as CANCELLED"):
        until(lambda: runtime.start(launch), "it is asked about again")


@pytest.mark.slow
def test_a_job_that_slurm_forgets_is_not_submitted_again(runtime: SlurmRuntime, slurm: Slurm) -> None:
    slurm.ask("scontrol", "update", "nodename=one", "state=drain", "reason=test")
    launch = start_with(runtime, "a", "GPU-0", "30")
    (number,) = slurm.ask("squeue", "--noheader", "--format=%A").split()
    slurm.ask("scontrol", "update", f"jobid={number}", "jobname=another")
    with pytest.raises(LaunchError, match="does not know its job a-"):
        until(lambda: runtime.start(launch), "it is asked about again")
    slurm.ask("scontrol", "update", "nodename=one", "state=resume")


@pytest.mark.slow
def test_a_service_is_served_from_a_job_and_sees_no_more_than_its_share(
    runtime: SlurmRuntime, slurm: Slurm, tmp_path: Path
) -> None:
    with machine(tmp_path) as made:
        copies = opened(made.folder / "copies", made.uuids)
        with running(made, runtime=copies) as node:
            node.offer(assigned(1, served("search-1"), served("images-1", sm=50)))
            until(lambda: ready(node, "search-1", "images-1"), "both are ready")
            asked = slurm.ask("squeue", "--noheader", "--format=%b").split()
            node.offer(assigned(2, served("search-1")))
            until(lambda: ready(node, "search-1"), "the other has ended")
        assert sorted(asked) == ["gres:mps:30", "gres:mps:50"]


@pytest.mark.slow
def test_slurm_keeps_nothing_of_a_copys_environment(runtime: SlurmRuntime, slurm: Slurm) -> None:
    launch = replace(launched("a", SLEEPER), gpu="GPU-0", limits={MPS_SHARE: "30", "TOKEN": "canary"})
    until(lambda: runtime.start(launch), "it runs")
    (number,) = slurm.ask("squeue", "--noheader", "--format=%A").split()
    assert "canary" not in slurm.ask("scontrol", "write", "batch_script", number, "-")
    assert not any(b"canary" in path.read_bytes() for path in (slurm.folder / "state").rglob("*") if path.is_file())
    assert list((runtime._folder / "starts").iterdir()) == []


def test_gpus_that_nobody_can_name_are_refused(runtime: SlurmRuntime) -> None:
    with pytest.raises(LaunchError, match="Slurm has no GPU for GPU-9"):
        start_with(runtime, "a", "GPU-9", "30")
    with pytest.raises(LaunchError, match="several nodes of Slurm"):
        start_with(runtime, "b", "GPU-0,GPU-1")


def test_an_agent_refuses_a_slurm_that_does_not_know_its_gpus(runtime: SlurmRuntime, tmp_path: Path) -> None:
    options = AgentOptions(tmp_path / "agent", device="simulated", runtime="slurm", slurm_nodes=("one", "other"))
    try:
        with pytest.raises(ValueError, match="knows 2 GPUs of one, other, and this machine has 4"):
            open_node(options)
        with pytest.raises(SlurmRefused, match="nowhere not found"):
            open_node(replace(options, slurm_nodes=("nowhere",)))
        parts = open_node(replace(options, slurm_nodes=("one", "other", "pair")))
        assert isinstance(parts.drivers.runtime, SlurmRuntime)
    finally:
        Switches(options.folder / "simulated").quit()


def test_doctor_says_whether_slurm_can_give_out_the_gpus(
    runtime: SlurmRuntime, slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = AgentOptions(tmp_path, runtime="slurm", slurm_nodes=("one", "other"))
    (good,) = check_slurm(options, 2)
    assert (good.level, good.found) == (Level.OK, "one gives mps:100, other gives mps:100")
    (wrong,) = check_slurm(options, 4)
    assert wrong.level is Level.FAIL and "knows 2 GPUs of one, other, and this machine has 4; name" in wrong.found
    slurm.ask("scontrol", "update", "nodename=one", "state=drain", "reason=test")
    _, drained = check_slurm(options, 2)
    slurm.ask("scontrol", "update", "nodename=one", "state=resume")
    assert (drained.level, drained.found) == (Level.WARN, "one is IDLE+DRAIN: Slurm starts nothing there")
    with monkeypatch.context() as changed:
        changed.setenv("PATH", "/nowhere")
        (absent,) = check_slurm(options, 2)
    assert (absent.level, "not installed" in absent.found) == (Level.FAIL, True)


@pytest.mark.parametrize(
    ("gres", "why"),
    [
        ("(null)", "no GPU"),
        ("gpu:a100:4(S:0-1),mps:a100:400", "Slurm would choose among them"),
        ("gpu:2,shard:200", "Slurm would choose among them"),
        ("gpu:left:1,gpu:right:1,mps:left:100,mps:right:100", "it needs shard"),
        ("gpu:1", "it needs mps or shard"),
    ],
)
def test_a_node_whose_gpus_cannot_be_planned_is_refused(gres: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        list(parse_gpus("n1", f"NodeName=n1 Gres={gres} NodeAddr=n1"))


def test_what_slurm_gave_is_compared_with_what_was_planned() -> None:
    start = SlurmStart(("/bin/true",), {}, 0, None, "1", 30)
    assert find_mismatch(start, {"SLURM_JOB_GPUS": "1", MPS_SHARE: "30"}) == ""
    assert find_mismatch(start, {MPS_SHARE: "30"}) == ""
    assert "Slurm gave GPU 0 of its node, and 1 was planned" in find_mismatch(start, {"SLURM_JOB_GPUS": "0"})
    assert "gave 60 %" in find_mismatch(start, {MPS_SHARE: "60"})
    assert "gave no %" in find_mismatch(start, {})


def test_an_agent_without_slurms_commands_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SlurmAway, match="sbatch, squeue, scancel, scontrol not found"):
        SlurmCommands()


@pytest.mark.slow
def test_a_node_that_is_drained_in_slurm_is_reported_until_it_is_resumed(
    runtime: SlurmRuntime, slurm: Slurm, tmp_path: Path
) -> None:
    file = tmp_path / "reclaim"
    notices = SlurmNotices(SlurmCommands(), ["one", "other"], ReclaimFile(file))
    slurm.ask("scontrol", "update", "nodename=one", "state=drain", "reason=test")
    assert not notices.look() and not notices.drained, "one of its two nodes is drained"
    with machine(tmp_path) as made, running(made, runtime=runtime, notices=notices) as node:
        slurm.ask("scontrol", "update", "nodename=other", "state=drain", "reason=test")
        until(lambda: node.drained, "both are")
        slurm.ask("scontrol", "update", "nodename=one,other", "state=resume")
        until(lambda: not node.drained, "it is used again")
        due = (date() + timedelta(minutes=5)).replace(microsecond=0)
        file.write_text(due.isoformat())
        until(lambda: node.reclaim_at == due, "the cloud takes the machine back")


@pytest.mark.slow
def test_copies_go_on_while_slurms_controller_is_away(runtime: SlurmRuntime, slurm: Slurm) -> None:
    first = start_with(runtime, "a", "GPU-0", "30")
    until(lambda: runtime.start(first), "it runs")
    (copy,) = runtime.find()
    with slurm.controller_away():
        start_with(runtime, "b", "GPU-1", "30")
        assert "controller has not answered squeue for 5 s" in runtime.log_tail("b")
        with pytest.raises(LaunchError, match="controller does not answer"):
            runtime.withdraw("b")
        assert runtime.alive(copy)
        runtime.end(copy, force=False)
        until(lambda: not runtime.alive(copy), "it ends all the same")
        with pytest.raises(ExitUndecided):
            runtime.exit_code(copy)
    assert await_code(runtime, copy) == 143, "Slurm knows its end once it is back"


@pytest.mark.slow
@pytest.mark.parametrize(("code", "shown"), [(0, 0), (7, 7)])
def test_an_exit_code_is_told_once_slurm_is_sure_of_it(
    runtime: SlurmRuntime, tmp_path: Path, code: int, shown: int
) -> None:
    program = f"while [ ! -e {tmp_path}/ends ]; do sleep 0.05; done; exit {code}"
    launch = replace(launched("a", program), gpu="GPU-1", limits={MPS_SHARE: "30"})
    started: list[Running] = []

    def runs() -> bool:
        running = runtime.start(launch)
        started.extend([running] if running else [])
        return bool(started)

    until(runs, "it runs")
    (tmp_path / "ends").touch()
    until(lambda: not runtime.alive(started[0]), "it ends")
    assert await_code(runtime, started[0]) == shown


@pytest.mark.slow
def test_a_users_own_command_runs_under_its_filter_with_its_secrets(runtime: SlurmRuntime, slurm: Slurm) -> None:
    program = "grep -E 'NoNewPrivs|Seccomp:|Uid' /proc/self/status; echo $API_KEY; exec sleep 600"
    confined = Confined(user=USER, secrets={"API_KEY": "swordfish"})
    filled = Filled("own", ("/bin/sh", "-c", program), confined=confined)
    running = None
    while running is None:
        running = runtime.start(Launch("own", "GPU-0", filled, 0, {MPS_SHARE: "20"}))
    until(lambda: "swordfish" in runtime.log_tail("own"), "it has its secret")
    shown = runtime.log_tail("own").split()
    assert shown[:2] == ["Uid:", str(USER)]
    assert " ".join(shown[5:9]) == "NoNewPrivs: 1 Seccomp: 2"
    assert [copy.pid for copy in runtime.find()] == [running.pid]


@pytest.mark.slow
def test_slurm_starts_no_copy_a_second_time(runtime: SlurmRuntime, slurm: Slurm) -> None:
    launch = start_with(runtime, "a", "GPU-0", "30")
    until(lambda: runtime.start(launch), "it runs")
    with pytest.raises(subprocess.CalledProcessError):
        slurm.ask("scontrol", "requeue", job_of(slurm))
    assert [copy.copy for copy in runtime.find()] == ["a"]
