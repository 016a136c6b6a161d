"""Leads nodes from what they run to what a plan wants: make before break, room and capacity at every step.

`order` finds the steps before a plan is recorded; `advance` says, again and again, what may be assigned now.
"""
