"""The kit's command line; see scripts/gpu_kit.sh."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from pathlib import Path

from cli.arguments import positive
from scripts.gpukit.archive import BadArchive
from scripts.gpukit.keep import keep_archive, make_page
from scripts.gpukit.stand import KitOptions
from scripts.gpukit.steps import NAMES
from scripts.gpukit.trial import try_everything

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/gpu_kit.sh")
    parts = parser.add_subparsers(dest="part", required=True)
    run = parts.add_parser("run", help="try everything in at most ten minutes, and write one archive")
    run.add_argument("out", type=Path, metavar="OUT", help="the folder for the archive")
    run.add_argument("--change-settings", action="store_true", help="also try clocks, power limit and compute mode")
    run.add_argument("--seconds", type=positive, default=2.0, help="for one timing; default %(default)s")
    run.add_argument("--short", action="store_true", help="fewer loads and shares")
    run.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="STEP", help=", ".join(NAMES))
    run.add_argument("--stand-in", action="store_true", help="without a GPU, to try the kit itself")
    keep = parts.add_parser("keep", help="check an archive that was sent, keep it, and list it in the page")
    keep.add_argument("archive", type=Path, metavar="ARCHIVE")
    keep.add_argument("--sender", required=True, metavar="NAME", help="as the page is to name them")
    keep.add_argument("--sha256", default="", help="of the archive; default: what ARCHIVE.sha256 states")
    parts.add_parser("page", help="print the page of what is kept")
    args = parser.parse_args()
    if args.part == "run":
        options = KitOptions(args.seconds, args.short, args.change_settings, args.stand_in)
        status = try_everything(args.out, options, {"device", *args.only})
        if multiprocessing.active_children():  # one hangs in the driver, which not even a kill ends: leave it behind
            sys.stdout.flush()
            os._exit(status)
        return status
    if args.part == "page":
        print(make_page(ROOT), end="")
        return 0
    try:
        print(f"kept as {keep_archive(args.archive, args.sender, args.sha256, ROOT)}")
    except (BadArchive, OSError) as error:
        print(f"gpu_kit.sh: {args.archive} is not kept: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
