"""What solvers are measured on: families of problems drawn from a seed, baselines, and public data."""
