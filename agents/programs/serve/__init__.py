"""`gpuwright-serve`: a small HTTP model server with dynamic batching, an adjustable batch size and an orderly drain."""
