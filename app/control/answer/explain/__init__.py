"""Explains services, instances, jobs and plans, in numbers and sentences. Pure."""
