"""The parts of `gpuwright up`: its database, its fleet, the processes that end with it, and what it shows."""
