"""The leader's observations: a consistent read of the database, and the loads and corrections learnt from reports."""
