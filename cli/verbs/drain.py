"""`gpuwright drain`: move everything off nodes and GPUs."""

from __future__ import annotations

import argparse

from cli.verbs.cordon import arguments, run

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments(parser, "drain")
