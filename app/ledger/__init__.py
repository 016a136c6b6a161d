"""The ledger: the use and cost of every quarter-hour of every GPU, exact to the last billionth.

docs/money.md has the mathematics and the rules.
"""
