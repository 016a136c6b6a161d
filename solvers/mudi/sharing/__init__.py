"""The smallest SM% that meet the SLOs of services that share a GPU (Mudi, M5): `find` is the function to call."""
