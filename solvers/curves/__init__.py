"""Fits the latency of a model over batch, SM% and clock to few measurements, says how sure it is, and what to measure.

`fit` turns measurements into a curve; `next_setting` chooses the next measurement, or says that there are enough.
`table` turns a curve into the points of a profile.
"""
