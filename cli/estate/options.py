"""Refuses options of `gpuwright assess` that do not go together, before anything is read."""

from __future__ import annotations

import argparse
import errno
import os
from pathlib import Path

from cli import sources
from cli.exits import Failed
from clusters.addresses import AddressRefused, check_address


def check_options(args: argparse.Namespace) -> None:
    """Refuses what would be left out without a word, and a page that cannot be written, before anything is read."""
    for given, flag in ((args.kubeconfig, "--kubeconfig"), (args.prices, "--prices"), (args.slo, "--slo")):
        if given == "":
            raise Failed(f"{flag} names no file: it is empty")
    _check_prometheus(args)
    if args.backtest and args.backtest < 3600:
        raise Failed("--backtest is shorter than an hour, of which it has a row")
    if args.backtest and args.output == "yaml":
        raise Failed("a backtest is not in -o yaml: leave --backtest out, or give -o text or json")
    if 0 < args.seconds < args.backtest:
        raise Failed("--backtest is longer than --from: leave --from out, or give it the longer time")
    if args.html is None:
        return
    if args.html in ("", "-"):
        raise Failed(f"--html {args.html!r} names no file")
    try:
        _check_page(args, Path(args.html))
    except OSError as error:
        raise Failed(f"{args.html} cannot be written: {os.strerror(error.errno or errno.EIO)}") from None


def _check_page(args: argparse.Namespace, page: Path) -> None:
    read = [*(args.files or ()), *args.profiles, args.kubeconfig, args.prices, args.slo, args.prometheus_token_file]
    for given in filter(None, read):
        if _holds(Path(given), page):
            raise Failed(f"--html would write over {args.html}, which is read")
    if not os.access(page if page.exists() else page.parent, os.W_OK):
        raise OSError(errno.EACCES if page.parent.exists() else errno.ENOENT, "")
    if page.is_dir():
        raise OSError(errno.EISDIR, "")


def _check_prometheus(args: argparse.Namespace) -> None:
    if args.prometheus:
        try:
            check_address(args.prometheus)
        except AddressRefused as refused:
            raise Failed(f"--prometheus is not allowed: {refused}") from None
        return
    for given, flag in ((args.seconds, "--from"), (args.prometheus_token_file, "--prometheus-token-file")):
        if given:
            raise Failed(f"{flag} is for --prometheus, which is missing")
    if args.backtest and not args.demo:
        raise Failed("--backtest is of loads that were measured: give --prometheus, or --demo")


def _holds(read: Path, page: Path) -> bool:
    """Returns whether the page is the file that is read, or one of those in a folder that is read."""
    if sources.is_folder(read):
        return page.exists() and page.suffix in sources.SUFFIXES and read.resolve() in page.resolve().parents
    return page.exists() and os.access(read, os.F_OK) and page.samefile(read)
