"""Routes of profiling campaigns."""
