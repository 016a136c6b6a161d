"""Tests of predictions of interference by traits."""
