"""`gpuwright-serve`: a small HTTP model server with dynamic batching, a live batch size and an orderly drain."""
