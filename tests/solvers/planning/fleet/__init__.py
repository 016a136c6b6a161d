"""Tests of the account of a fleet and the offers for it."""
