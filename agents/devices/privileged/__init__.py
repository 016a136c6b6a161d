"""The root helper of a node: the few writes to a GPU that need root, in a process without network access.

`python -m agents.devices.privileged` runs it (`server.py`); the agent talks to it through `client.py`.
"""
