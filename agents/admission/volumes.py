"""Finds the folder of a volume as it is at a start, and refuses one that another user could have put there."""

from __future__ import annotations

import os

from agents.admission.reading import AllowList, find_forbidden
from agents.host.trusted_path import PathRefused, open_trusted


def find_folder(allow_list: AllowList, name: str) -> str:
    """Returns the real path of the volume's folder, without links. Raises PathRefused.

    The folder of a volume that copies write may belong to them; what leads to it may not.
    """
    real = _real_folder(allow_list, name)
    forbidden = find_forbidden(real, allow_list.kept, allow_list.models)
    if forbidden:
        raise PathRefused(f"{real} {forbidden}")
    for other, volume in allow_list.volumes.items():
        if volume.write and other != name and f"{real}/".startswith(f"{os.path.realpath(volume.folder)}/"):
            raise PathRefused(f"{real} lies in the volume {other}, where copies could replace it")
    return real


def _real_folder(allow_list: AllowList, name: str) -> str:
    volume = allow_list.volumes[name]
    with open_trusted(volume.folder, is_end_shared=volume.write) as found:
        if not found.is_folder:
            raise PathRefused(f"{volume.folder} is not a folder")
        return found.real
