"""Pure mathematics: data in, data out; no clock, no files, no randomness without a seed."""
