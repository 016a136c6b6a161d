"""The kit's command line; see scripts/gpu_kit.sh."""

from __future__ import annotations

import argparse
import json
import platform
import re
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Collection
from pathlib import Path

from cli.arguments import positive
from scripts.gpukit import device_steps, handover, load_steps, profiler
from scripts.gpukit.page import render
from scripts.gpukit.stand import KitOptions, Stand, open_stand

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "tests" / "agents" / "devices" / "recorded"
PAGE = ROOT / "docs" / "gpu-evidence.md"
Step = Callable[[Stand], dict[str, object]]
# What needs least time comes first, so that a machine that is taken away early has shown something.
STEPS: dict[str, Step] = {
    "device": device_steps.read_device,
    "settings": device_steps.try_settings,
    "mps": device_steps.ask_mps,
    "shares": load_steps.see_shares,
    "memory": load_steps.exceed_memory,
    "termination": load_steps.end_one_of_two,
    "handover": handover.hand_over,
    "alone": load_steps.run_alone,
    "clocks": device_steps.try_clocks,
    "realModel": load_steps.run_real_model,
    "profiler": profiler.run_profiler,
    "pairs": load_steps.run_pairs,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/gpu_kit.sh")
    parts = parser.add_subparsers(dest="part", required=True)
    run = parts.add_parser("run", help="try everything, and record it")
    run.add_argument("out", type=Path, metavar="OUT")
    run.add_argument("--seconds", type=positive, default=3.0, help="for one timing; default %(default)s")
    run.add_argument("--short", action="store_true", help="fewer loads and shares")
    run.add_argument("--leave-settings", action="store_true", help="set no clock, power limit or compute mode")
    run.add_argument("--only", nargs="+", choices=STEPS, default=[*STEPS], metavar="STEP", help=", ".join(STEPS))
    keep = parts.add_parser("keep", help="keep a recording as a fixture, and write docs/gpu-evidence.md")
    keep.add_argument("file", type=Path, metavar="FILE")
    parts.add_parser("page", help="print the page of the recordings that are kept")
    args = parser.parse_args()
    if args.part == "run":
        return _run(args.out, KitOptions(args.seconds, args.short, args.leave_settings), {"device", *args.only})
    if args.part == "keep":
        _keep(args.file)
    print(_kept(), end="")
    return 0


def _run(out: Path, options: KitOptions, names: Collection[str]) -> int:
    """Runs every step, also after one that failed; returns 1 if one failed."""
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="gk-", dir="/tmp"))  # short: sockets are in it
    try:
        stand = open_stand(folder, options)
        print(f"{stand.gpu.name}{', a stand-in: this machine has no GPU' if stand.is_stub else ''}", flush=True)
        found: dict[str, object] = {}
        recording: dict[str, object] = {
            "at": time.strftime("%Y-%m-%d", time.gmtime()),
            "isStandIn": stand.is_stub,
            "machine": f"{platform.machine()}, Linux {platform.release()}, Python {platform.python_version()}",
            "secondsEach": options.seconds,
            "steps": found,
        }
        out.mkdir(parents=True, exist_ok=True)
        try:
            for name in [name for name in STEPS if name in names]:
                found[name] = _tried(name, STEPS[name], stand)
                recording["seconds"] = round(time.monotonic() - began)
                (out / "recording.json").write_text(json.dumps(recording, indent=1) + "\n")
        finally:
            stand.drivers.mps.stop(stand.gpu.uuid)
            stand.drivers.device.restore()
            stand.drivers.device.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    (out / PAGE.name).write_text(render([json.loads((out / "recording.json").read_text())]))
    failed = [name for name, result in found.items() if isinstance(result, dict) and "failed" in result]
    print(f"{len(found) - len(failed)} of {len(found)} steps in {recording['seconds']} s; see {out}")
    return 1 if failed else 0


def _tried(name: str, step: Step, stand: Stand) -> dict[str, object]:
    began = time.monotonic()
    try:
        result = step(stand)
    except Exception as error:  # a GPU is seldom at hand: the steps after it are tried all the same
        traceback.print_exc()
        result = {"failed": f"{type(error).__name__}: {error}"}
    print(
        f"{name}: {result.get('failed') or result.get('skipped') or 'done'}, {time.monotonic() - began:.0f} s",
        flush=True,
    )
    return result


def _keep(file: Path) -> None:
    """Keeps the recording under the GPU's name, with the steps that only an earlier one has; writes the page."""
    recording = json.loads(file.read_text())
    gpu = recording["steps"]["device"]["gpu"]["name"]
    name = re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-") + ("-stand-in" if recording["isStandIn"] else "")
    RECORDED.mkdir(exist_ok=True)
    path = RECORDED / f"{name}.json"
    if path.exists():
        recording["steps"] = json.loads(path.read_text())["steps"] | recording["steps"]
    path.write_text(json.dumps(recording, indent=1) + "\n")
    PAGE.write_text(_kept())


def _kept() -> str:
    return render([json.loads(kept.read_text()) for kept in sorted(RECORDED.glob("*.json"))])


if __name__ == "__main__":
    raise SystemExit(main())
