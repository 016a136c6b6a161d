"""The parts of running a Postgres server of our own: its binaries, its folder, its process."""
