"""Problems to measure solvers on: families drawn from a seed, and how plans of them are timed and counted."""
