"""Talks to a server: which one and with which token, requests and streams, refusals, and which objects are meant."""
