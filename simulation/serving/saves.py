"""Keeps what simulated jobs have saved in files, as gpuwright-train does: on storage that all nodes share."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from pathlib import Path

from agents.programs.train.main import Damaged, load_steps, save_steps


class SharedSaves(MutableMapping[str, float]):
    """The steps or requests at the last save of each job (`tenant/name`), in one file a job."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)

    def __getitem__(self, job: str) -> float:
        path = self._path(job)
        if not path.is_file():
            raise KeyError(job)
        try:
            return float(load_steps(path))
        except Damaged as damaged:
            raise KeyError(job) from damaged

    def __setitem__(self, job: str, units: float) -> None:
        if self.get(job) != int(units):
            save_steps(self._path(job), int(units))

    def __delitem__(self, job: str) -> None:
        self._path(job).unlink(missing_ok=True)

    def __iter__(self) -> Iterator[str]:
        return (path.name.replace(".", "/", 1) for path in self._folder.iterdir() if path.is_file())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _path(self, job: str) -> Path:
        return self._folder / job.replace("/", ".", 1)
