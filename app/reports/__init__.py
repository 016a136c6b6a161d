"""Reports on money, energy and SLOs: with OpenCost's names, as CSV, and in FOCUS's columns."""
