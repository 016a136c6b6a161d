"""The ledger: what every quarter-hour of every GPU was used for and cost, so that it adds up to the last billionth.

The mathematics and the rules stand in docs/money.md.
"""
