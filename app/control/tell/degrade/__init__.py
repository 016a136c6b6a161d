"""Degrades services in order: less accurate variants where a service admits them, then queueing, then 503; by priority.

The solver chooses variants and priorities: unserved requests have a price, so it takes the admitted variant that needs
least before it leaves anything unserved, and then what weighs least. Gateways queue and reject the rest.
"""
