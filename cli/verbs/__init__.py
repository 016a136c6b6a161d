"""One module a verb: `add_arguments(parser)` says what it takes, `run(args)` does it and gives the exit."""
