"""The parts of `gpuwright assess`: its options, its figures for people and as data, its page and its manifests."""
