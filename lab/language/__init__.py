"""Further models of language-model servers: a closed loop, online planning, and fits to logs and sweeps."""
