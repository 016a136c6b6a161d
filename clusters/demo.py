"""The recorded estate that `gpuwright assess --demo` shows: objects of a made-up cluster, and what its owner pays."""

from __future__ import annotations

import gzip
import json
from importlib import resources

from clusters.objects import ClusterObjects, objects_of

PRICES_NAME = "the demo's prices"


def read_demo() -> tuple[ClusterObjects, str]:
    """Returns the objects, and the text of the demo's file of prices."""
    packed = resources.files("clusters").joinpath("demo.json.gz").read_bytes()
    found = json.loads(gzip.decompress(packed))
    return objects_of(found["items"]), found["prices"]
