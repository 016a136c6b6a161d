"""What was sent is checked, played to the agent's own code, kept once, and listed with its sender."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scripts.gpukit import archive
from scripts.gpukit.archive import BadArchive, write_archive
from scripts.gpukit.keep import FOLDER, PAGE, keep_archive, make_page, play, read_kept
from scripts.gpukit.page import render_page, render_recording
from scripts.gpukit.recording import KeptRecording, Recording, StepRecord, encode
from scripts.house.tree import ROOT
from tests.support.nvml_stub import needs_gcc

KEPT = read_kept(ROOT)
STAND_IN = next(kept.recording for kept in KEPT if kept.recording.is_stand_in)
# A stand-in's recording that says that it is of a GPU: nothing tells the two apart but the sender's word.
CLAIMED = msgspec.structs.replace(STAND_IN, is_stand_in=False)
NAME = "gpu-kit.tar.gz"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / PAGE).parent.mkdir()
    (tmp_path / PAGE).write_text("as it was")
    return tmp_path


def send(root: Path, recording: Recording) -> Path:
    path = root / NAME
    write_archive(path, {archive.RECORDING: encode(recording), archive.EVIDENCE: b"what it says\n"})
    return path


def refuse(root: Path, path: Path, sender: str = "Ada") -> str:
    """Returns why it is not kept; nothing may have changed."""
    kept = {file: file.read_bytes() for file in root.rglob("*") if file.is_file()}
    with pytest.raises(BadArchive) as error:
        keep_archive(path, sender, "", root)
    assert {file: file.read_bytes() for file in root.rglob("*") if file.is_file()} == kept
    return str(error.value)


def change_found(step: str, change: Callable[[dict[str, Any]], object]) -> Recording:
    """Returns the recording with something else found by one step."""
    copy = msgspec.json.decode(encode(CLAIMED), type=Recording)
    change(copy.steps[step].found)
    return copy


@pytest.mark.slow
@needs_gcc
@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: f"{kept.recording.card} {kept.sha256[:8]}")
def test_a_kept_recording_can_be_played(kept: KeptRecording) -> None:
    assert play(kept.recording) == ""


@pytest.mark.slow
@needs_gcc
def test_what_was_sent_is_kept_once_and_has_a_row_with_its_sender(root: Path) -> None:
    path = send(root, CLAIMED)
    whole = archive.read_archive(path)[0]
    target = keep_archive(path, "Ada L.", whole, root)
    assert target.parent == root / FOLDER and target.name == f"nvidia-h100-80gb-hbm3-{whole[:8]}.json"
    (kept,) = read_kept(root)
    assert kept == KeptRecording("Ada L.", whole, CLAIMED)
    page = (root / PAGE).read_text()
    row = f"| NVIDIA H100 80GB HBM3 | 570.00.stub | 12.8 | Ada L. | {CLAIMED.at} | 11 of 12 | {whole} |"
    assert row in page.splitlines() and page == make_page(root) and "None yet" not in page
    assert "is kept already, from Ada L." in refuse(root, path, "Somebody else")
    path.write_bytes(b"")
    write_archive(path, {archive.RECORDING: encode(CLAIMED), archive.EVIDENCE: b"packed otherwise\n"})
    assert "is kept already" in refuse(root, path)


@pytest.mark.slow
@needs_gcc
def test_a_recording_whose_replies_make_another_gpu_is_not_kept(root: Path) -> None:
    fewer = change_found("device", lambda found: found["replies"].update(sm_count=100, cores=12800))
    assert "cannot be played: sm_count is 100, and was 132" in refuse(root, send(root, fewer))


@pytest.mark.slow
@needs_gcc
@pytest.mark.parametrize("reply", [{"../../../../escaped": 1}, {"uuid": "x"}, {"clocks": "1" * 5000}, {"name": ["x"]}])
def test_replies_that_nvml_does_not_give_are_not_played(reply: dict[str, Any], root: Path) -> None:
    other = change_found("device", lambda found: found["replies"].update(reply))
    assert "is none of NVML's" in refuse(root, send(root, other))


def test_an_archive_that_is_no_recording_of_the_kit_is_not_kept(root: Path) -> None:
    path = root / NAME
    for content in (b"{}", b"[" * 100_000, b'{"at": 1}', encode(CLAIMED).replace(b'"card"', b'"other"')):
        write_archive(path, {archive.RECORDING: content, archive.EVIDENCE: b""})
        assert refuse(root, path).startswith("recording.json is not a recording: ")
    more = msgspec.structs.replace(CLAIMED, steps={**CLAIMED.steps, "mine": StepRecord("done")})
    assert "has a step 'mine'" in refuse(root, send(root, more))
    failed = msgspec.structs.replace(CLAIMED, steps={"device": StepRecord("failed", "no driver")})
    assert "its step 'device' is not done" in refuse(root, send(root, failed))
    empty = msgspec.structs.replace(CLAIMED, steps={**CLAIMED.steps, "shares": StepRecord("done")})
    assert "lacks what a step finds: KeyError: 'of'" in refuse(root, send(root, empty))


@pytest.mark.parametrize("sender", ["", "a | b", "<b>", "x" * 61, "two\nlines"])
def test_a_sender_has_a_plain_name(sender: str, root: Path) -> None:
    assert "the sender's name" in refuse(root, send(root, CLAIMED), sender)


def test_what_was_sent_is_text_on_the_page_and_no_markup() -> None:
    hostile = "<script>x</script> | `y` [z](javascript:z)\n# heading"
    other = change_found("shares", lambda found: found.update(of=hostile))
    other.steps["memory"].found["said"] = [hostile]
    steps = {**other.steps, "mps": StepRecord("failed", hostile)}
    other = msgspec.structs.replace(other, card=hostile, commit=hostile, steps=steps)
    page = render_page([KeptRecording("Ada", "0" * 64, other)])
    assert "<script" not in page and "](javascript" not in page and "`y`" not in page and "\n# heading" not in page
    assert page.count("&lt;script&gt;") == 6  # row, heading, commit, why, shares, memory


def test_the_page_is_what_the_kept_recordings_say() -> None:
    assert make_page(ROOT) == (ROOT / PAGE).read_text()


def test_the_table_is_empty_until_there_is_a_recording_of_a_gpu() -> None:
    stand_ins = [kept for kept in KEPT if kept.recording.is_stand_in]
    assert "**None yet: gpuwright has never run on a GPU.**" in render_page(stand_ins)
    assert "NVIDIA" not in render_page(stand_ins).partition("## Recordings")[2]


def test_a_section_of_a_gpu_has_the_times_that_one_of_a_stand_in_leaves_out() -> None:
    assert "| arithmetic |" not in render_recording(STAND_IN)
    section = render_recording(CLAIMED)
    assert "| arithmetic | 25 |" in section and "| arithmetic + bandwidth | 25 % + 75 % |" in section
    changed = msgspec.structs.replace(CLAIMED, settings_after={"compute mode": 3})
    assert "These settings differed afterwards: compute mode, power limit in mW." in render_recording(changed)
