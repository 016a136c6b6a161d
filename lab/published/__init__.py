"""Published fleets, traces and algorithms, each compared with ours on its own protocol."""
