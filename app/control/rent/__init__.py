"""Rents nodes of pools and gives them back: what is needed, each order's life, and the hooks that carry orders out.

An order is recorded before its hook is called, with a key under which the hook may be called again.
"""
