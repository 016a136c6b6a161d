"""The errors of our predictions on measured servers of language models: the topics of `bench accuracy --llm`."""
