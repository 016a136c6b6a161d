"""Finds an order of steps for a plan before it is recorded, on a fleet that serves as soon as it is assigned."""
