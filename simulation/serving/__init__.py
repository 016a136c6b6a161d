"""Requests of a simulated fleet and the copies that answer them: when they come, who takes them, how long they wait."""
