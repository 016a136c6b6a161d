"""Pure mathematics: data in, data out; no clock, no files, and every random choice is seeded."""
