"""The agents' HTTP/1.1 servers: one reader of requests, and connections that an event loop or a thread each serves.

Not the standard library's http.server: it would add 1 MiB to the agent and limits neither time nor connections.
"""
