"""Tests of factorization machines."""
