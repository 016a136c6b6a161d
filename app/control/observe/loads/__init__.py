"""The load of services: read from gateways and nodes, stored in windows, and forecast."""
