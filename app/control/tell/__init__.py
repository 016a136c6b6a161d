"""What follows from a cycle for objects, events, metrics and whoever pays; it decides no plan."""
