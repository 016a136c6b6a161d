"""Runs tests in several workers: this process collects once, forks them, and gives each one file after the other."""
