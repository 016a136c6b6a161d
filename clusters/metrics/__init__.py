"""What Prometheus has of an estate: which counters tell of what, how they are asked, and what their answers mean."""
