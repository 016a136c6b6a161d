"""Tests of the joint plan."""
