"""The root helper of a node: the few writes to a GPU that need root, apart from everything that has a network.

`python -m agents.devices.privileged` runs it (`server.py`); the agent speaks to it through `client.py`.
"""
