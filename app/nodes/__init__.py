"""The traffic of a fleet: reports in, assignments out."""
