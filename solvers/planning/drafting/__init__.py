"""Makes drafts of plans by search and, on smaller fleets, by a choice among the patterns that the bound meets."""
