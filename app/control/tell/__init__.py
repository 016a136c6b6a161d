"""Announces what follows from a cycle to gateways, objects, events, metrics and tenants; decides no plan."""
