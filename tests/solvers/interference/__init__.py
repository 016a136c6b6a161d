"""Tests of models of interference."""
