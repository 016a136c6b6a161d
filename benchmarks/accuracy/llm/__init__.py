"""How wrong our predictions are on measured servers of language models: the topics of `bench accuracy --llm`."""
