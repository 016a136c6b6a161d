"""Language models: the time of an iteration, the queue of a server, and the load that it carries.

It imports nothing: every problem names lengths and promises of tokens, and few need the compiled simulation.
"""
