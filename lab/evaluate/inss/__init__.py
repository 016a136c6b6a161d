"""InSS on its own testbed: its experiments, and the claims of its paper."""
