"""`gpuwright-train`: a training job without mathematics that steps as fast as its GPU share would allow."""
