"""Problems to measure solvers on: families drawn from a seed, baselines, and public data."""
