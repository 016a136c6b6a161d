"""Keeps what somebody sent: checks it, plays it to the agent's own code, and lists it in docs/gpu-evidence.md."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from scripts.gpukit import archive
from scripts.gpukit.archive import BadArchive
from scripts.gpukit.page import render_page, render_recording
from scripts.gpukit.recording import KeptRecording, Recording, encode, name_file
from scripts.gpukit.steps import NAMES

FOLDER = Path("tests") / "agents" / "devices" / "recorded"
PAGE = Path("docs") / "gpu-evidence.md"
PLAY_SECONDS = 60.0
_SENDER = re.compile(r"[\w.@+ -]{1,60}")


def keep_archive(path: Path, sender: str, sha256: str, root: Path) -> Path:
    """Keeps the archive's recording as a fixture below `root`, and writes the page. Raises BadArchive."""
    if not _SENDER.fullmatch(sender):
        raise BadArchive(f"the sender's name {sender!r} may have letters, digits, spaces and . @ + - _, at most 60")
    whole, files = archive.read_archive(path, sha256)
    recording = _read_recording(files)
    for kept in read_kept(root):
        if kept.sha256 == whole or kept.recording == recording:
            raise BadArchive(f"it is kept already, from {kept.sender}")
    if why := play(recording):
        raise BadArchive(f"its replies of NVML cannot be played: {why}")
    target = root / FOLDER / f"{name_file(recording)}-{whole[:8]}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(encode(KeptRecording(sender, whole, recording)))
    (root / PAGE).write_text(make_page(root))
    return target


def make_page(root: Path) -> str:
    return render_page(read_kept(root))


def read_kept(root: Path) -> list[KeptRecording]:
    """Returns all that was kept, in the order of their days."""
    kept = [msgspec.json.decode(path.read_bytes(), type=KeptRecording) for path in (root / FOLDER).glob("*.json")]
    return sorted(kept, key=lambda one: (one.recording.at, one.sha256))


def play(recording: Recording) -> str:
    """Returns why a stand-in for NVML with the recorded replies is not that GPU to the agent; empty if it is."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        file.write(msgspec.json.encode(recording.steps["device"].found))
        file.flush()
        words = [sys.executable, "-P", "-m", "scripts.gpukit.playing", file.name]
        try:
            played = subprocess.run(words, check=False, capture_output=True, text=True, timeout=PLAY_SECONDS)
        except subprocess.TimeoutExpired:
            return f"no answer within {PLAY_SECONDS:g} s"
    lines = (played.stderr or played.stdout).strip().splitlines()
    return "" if played.returncode == 0 else (lines or [f"status {played.returncode}"])[-1]


def _read_recording(files: dict[str, bytes]) -> Recording:
    try:
        recording = msgspec.json.decode(files[archive.RECORDING], type=Recording)
    except msgspec.MsgspecError as error:
        raise BadArchive(f"{archive.RECORDING} is not a recording: {error}") from error
    unknown = recording.steps.keys() - set(NAMES)
    if unknown:
        raise BadArchive(f"{archive.RECORDING} has a step {min(unknown)!r}; the kit has {', '.join(NAMES)}")
    device = recording.steps.get("device")
    if device is None or device.outcome != "done":
        raise BadArchive(f"{archive.RECORDING} does not say what NVML replied: its step 'device' is not done")
    try:
        render_recording(recording)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise BadArchive(f"{archive.RECORDING} lacks what a step finds: {type(error).__name__}: {error}") from error
    return recording
