"""A server as somebody has it already: FastAPI, routes of its own, not a word of gpuwright. It counts words of a text.

Run by hand: python server.py --port 8000
"""

from __future__ import annotations

import argparse
import os
import time

import uvicorn
from fastapi import FastAPI

app = FastAPI()
stop_words: set[str] = set()


@app.get("/healthz")
def health() -> dict[str, str]:
    return {"status": "up"}


@app.post("/warm")
def warm() -> dict[str, int]:
    """Loads the example's model: the words that are not counted."""
    stop_words.update(os.environ.get("STOP_WORDS", "a,the").split(","))
    return {"stopWords": len(stop_words)}


@app.get("/count")
def count(text: str, seconds: float = 0.0) -> dict[str, int]:
    time.sleep(min(seconds, 5.0))  # of made-up work
    return {"words": sum(word.lower() not in stop_words for word in text.split())}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    asked = parser.parse_args()
    # On SIGTERM uvicorn answers what it has accepted, and exits.
    uvicorn.run(app, host=asked.host, port=asked.port, log_level=os.environ.get("LOG_LEVEL", "info"), access_log=False)
