"""Histories of the API, recorded from real servers under pauses and cuts, and checked by code of their own."""
