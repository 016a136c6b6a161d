"""CPU cores as a device: a share in percent is a share of the cores' time, enforced by cgroups."""
