"""Money, energy and promises as reports: in OpenCost's words, as CSV, and in FOCUS's columns."""
