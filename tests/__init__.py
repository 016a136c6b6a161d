"""The tests."""

import os

# As in every command: threads that share small matrices take many times as long, and change the last digits.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
