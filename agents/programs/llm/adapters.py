"""The LoRA adapters that the stub of a server has loaded: names and folders, with vLLM's answers."""

from __future__ import annotations

from pathlib import Path

from agents.programs.llm.openai import RequestRefused, read_object

CONFIG = "adapter_config.json"


class LoadedAdapters:
    """Adapters by name; a refusal is a RequestRefused."""

    def __init__(self, model: str, places: int) -> None:
        self._model = model
        self._places = places
        self.folders: dict[str, str] = {}

    def load(self, body: bytes) -> str:
        """Loads the adapter that the body names, from its folder."""
        document = read_object(body)
        name, folder = document.get("lora_name"), document.get("lora_path")
        if not isinstance(name, str) or not isinstance(folder, str) or not name or not folder:
            raise RequestRefused("both lora_name and lora_path must be given")
        if name in self.folders or name == self._model:
            raise RequestRefused(f"the adapter {name!r} has been loaded already")
        if not (Path(folder) / CONFIG).is_file():
            raise RequestRefused(f"no adapter found for {name!r}: {folder} has no {CONFIG}", 404)
        if len(self.folders) >= self._places:
            raise RequestRefused(f"all {self._places} places for adapters are taken")
        self.folders[name] = folder
        return f"adapter {name} is loaded"

    def unload(self, body: bytes) -> str:
        """Unloads the adapter that the body names; requests that it answers go on."""
        name = read_object(body).get("lora_name")
        if self.folders.pop(str(name), None) is None:
            raise RequestRefused(f"the adapter {str(name)[:80]!r} cannot be found", 404)
        return f"adapter {name} is unloaded"
