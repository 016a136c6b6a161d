"""The parts of `gpuwright profile`: campaigns on nodes, servers at a URL, and reports of other tools."""
