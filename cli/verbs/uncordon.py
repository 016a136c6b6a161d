"""`gpuwright uncordon`: let plans use nodes and GPUs again."""

from __future__ import annotations

import argparse

from cli.verbs.cordon import arguments, run

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments(parser, "uncordon")
