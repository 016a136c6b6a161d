"""Predictions of interference for models never measured beside others, from what is known of them alone."""
