"""Bad input is refused whole, before anything is solved: exit 2, every fault named, never a traceback."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.main import main
from tests.app.manifests import bad
from tests.cli.conftest import Done
from tests.cli.offline import FLEET, process

Solve = Callable[..., Done]
FAULTY = {name: case for name, case in bad.FAULTY.items() if "State" not in name}  # a State is right, offline
# Refused alone too; the same reader names the faults of the others.
ALONE = (
    "unknown field inside",
    "no kind",
    "name with an underscore",
    "half an instance",
    "letters that changed places",
)
UNREADABLE_ALONE = ("nothing", "half a character", "an alias of itself", "a tab", "65 levels")


@pytest.fixture
def solve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Solve:
    """`solve` of files with these contents."""
    monkeypatch.setenv("NO_COLOR", "1")

    def call(*contents: bytes, stdin: bytes = b"", files: tuple[str, ...] = ()) -> Done:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        words = list(files)
        for at, content in enumerate(contents):
            (tmp_path / f"{at}.yaml").write_bytes(content)
            words.append(str(tmp_path / f"{at}.yaml"))
        capsys.readouterr()
        code = main(["solve", "--json", "--seconds", "0", *(part for word in words for part in ("-f", word))])
        said = capsys.readouterr()
        return Done(code, said.out, said.err)

    return call


def refused(done: Done) -> list[str]:
    """Returns the faults that it named; it may have said nothing else."""
    assert done.code == 2
    assert done.out == ""
    assert "Traceback" not in done.err
    assert "internal error" not in done.err
    heading, *faults = done.err.splitlines()
    assert heading.startswith("gpuwright: ")
    assert all(line.isprintable() for line in faults)
    return faults


@pytest.mark.parametrize("name", ALONE)
def test_a_wrong_manifest_is_refused_by_its_field(solve: Solve, name: str) -> None:
    case = FAULTY[name]
    faults = refused(solve(case.text.encode()))
    assert any(case.field in fault and case.says in fault for fault in faults), faults


@pytest.mark.parametrize("name", UNREADABLE_ALONE)
def test_an_unreadable_file_is_refused_by_its_place(solve: Solve, name: str) -> None:
    data, says = bad.UNREADABLE[name]
    faults = refused(solve(data))
    assert any(says in fault and "0.yaml" in fault for fault in faults), faults


def test_all_wrong_and_unreadable_files_together_are_each_refused_by_name(solve: Solve, tmp_path: Path) -> None:
    wrong: list[tuple[str, bytes, tuple[str, ...]]]
    wrong = [(name, case.text.encode(), (case.field, case.says)) for name, case in FAULTY.items()]
    wrong += [(name, data, (says,)) for name, (data, says) in bad.UNREADABLE.items()]
    faults = refused(solve(*(data for _, data, _ in wrong)))
    places = [[fault for fault in faults if f"{tmp_path}/{at}.yaml" in fault] for at in range(len(wrong))]
    assert [
        (name, told)
        for (name, _, says), told in zip(wrong, places, strict=True)
        if not any(all(words in fault for words in says) for fault in told)
    ] == []


def without(kind: str) -> str:
    return "---\n".join(part for part in FLEET.split("---\n") if f"kind: {kind}\n" not in part)


def running(**fields: str) -> str:
    """The fleet with a State, one field of its running instance changed."""
    right = {
        "service": "shop/search", "node": "n1", "gpu": "0", "variant": "v", "batch": "4", "smPercent": "40",
        "memoryGib": "2",
    } | fields  # fmt: skip
    line = ", ".join(f"{name}: {value}" for name, value in right.items())
    return FLEET + "---\n" + bad.manifest("State", "{running: [{" + line + "}]}")


CONTRADICTORY = {
    "no GPU type": (without("GpuType"), ["spec.gpuType: there is no GpuType named", "big"]),
    "no model": (without("Model"), ["spec.model: there is no Model named"]),
    "an unknown variant": (FLEET.replace("{name: v,", "{name: w,"), ["there is no variant of Model m named"]),
    "an unknown type of a service": (
        FLEET.replace("ratePerSecond: 20", "ratePerSecond: 20, gpuTypes: [bigg]"),
        ["spec.gpuTypes[0]: there is no GpuType named", "did you mean `big`?"],
    ),
    "a model of another tenant": (
        FLEET.replace("accuracy: 0.8}]", "accuracy: 0.8}], tenants: [lab]"),
        ["spec.model: there is no Model named"],
    ),
    "the same object twice": (FLEET + "---\n" + FLEET.split("---\n")[1], ["Node n1 is already declared"]),
    "two profiles of one thing": (
        FLEET + "---\n" + FLEET.split("---\n")[3].replace("{name: p}", "{name: q}"),
        ["Profile p already measures model m"],
    ),
    "a job on an unknown type": (FLEET + "---\n" + bad.job(), ["spec.profiles.t4: there is no GpuType named"]),
    "two States": (
        FLEET + "---\n" + bad.manifest("State", "{}") + "---\n" + bad.manifest("State", "{}", "{name: y}"),
        ["there is more than one State"],
    ),
    "running on no node": (running(node="n9"), ["spec.running[0].node: there is no Node n9"]),
    "running on no GPU": (running(gpu="2"), ["spec.running[0].gpu: Node n1 has no GPU 2", "0..1"]),
    "running for nobody": (running(service="shop/none"), ["there is no Service shop/none"]),
    "running an unknown variant": (running(variant="w"), ["Model m has no variant w"]),
    "running at another clock": (running(clockMhz="700"), ["700 MHz is not a clock of big", "600, 1200"]),
    "running without a batch": (running(batch="0"), ["spec.running[0].batch"]),
    "running on all and more": (running(smPercent="101"), ["spec.running[0].smPercent"]),
}


@pytest.mark.parametrize(("text", "says"), CONTRADICTORY.values(), ids=CONTRADICTORY)
def test_what_does_not_hold_together_is_refused_by_name(solve: Solve, text: str, says: list[str]) -> None:
    faults = "\n".join(refused(solve(text.encode())))
    assert all(words in faults for words in says), faults


def test_every_fault_of_every_file_is_reported_at_once(solve: Solve) -> None:
    first = bad.service(ratePerSecond="-1", slo="{latencyMs: no, percentile: 20}") + "---\n" + bad.node(gpus="0")
    faults = refused(solve(first.encode(), b"\xff", b"a: [", FLEET.encode(), files=("/nowhere.yaml",)))
    for words in (
        "/nowhere.yaml: the file cannot be read",
        "0.yaml#1 Service default/x: spec.ratePerSecond: -1",
        "spec.slo.latencyMs",
        "spec.slo.percentile",
        "0.yaml#2 Node x: spec.gpus: 0",
        "1.yaml:1:1: byte 0xff is not UTF-8",
        "2.yaml",
    ):
        assert any(words in fault for fault in faults), (words, faults)


def test_stdin_is_read_once_and_a_folder_without_manifests_is_no_input(solve: Solve, tmp_path: Path) -> None:
    assert "is not a number" in refused(solve(stdin=bad.service(ratePerSecond="no").encode(), files=("-",)))[0]
    assert "given only once" in solve(stdin=b"", files=("-", "-")).err
    (tmp_path / "empty").mkdir()
    done = solve(files=(str(tmp_path / "empty"),))
    assert (done.code, done.out) == (2, "")
    assert "has no .yaml" in done.err


LAYERS = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
BOMB = "\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x]", *LAYERS])
HUGE: dict[str, tuple[Callable[[], bytes], str]] = {  # made when a test asks: together they are 80 MB
    "an alias bomb": (BOMB.encode, "more than 2,000,000 values"),
    "too many values": (lambda: b"[" + b"0, " * 2_000_001 + b"0]", "more than 2,000,000 values"),
    "too many levels": (lambda: b"a: " + b"[" * 100_000, "nested deeper than 64 levels"),
    "too many bytes": (lambda: b"a: " + b"x" * (64 * 2**20), "at most 67,108,864 bytes"),
    "one long line of quotes": (lambda: b'a: "' + b"\\" * 4_000_000, "not YAML"),
    "20,000 faults": (lambda: b"---\n".join([bad.service(ratePerSecond="-1").encode()] * 20_000), "out of range"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("made", "says"), HUGE.values(), ids=HUGE)
def test_a_hostile_file_is_refused_by_the_whole_process_in_little_memory(
    tmp_path: Path, made: Callable[[], bytes], says: str
) -> None:
    file = tmp_path / "hostile.yaml"
    file.write_bytes(made())
    done = process(tmp_path, "solve", "-f", str(file), "--json", "--seconds", "0")
    assert done.code == 2, done.err[:2000]
    assert done.out == ""
    assert "Traceback" not in done.err
    assert says in done.err, done.err[:2000]
    assert len(done.err) < 300_000
    assert done.peak_mb < 500
