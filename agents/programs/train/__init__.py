"""`gpuwright-train`: a training job without mathematics, that steps as fast as its share of a GPU would let it."""
