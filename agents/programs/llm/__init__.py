"""`gpuwright-llm`: an OpenAI-compatible server whose iterations take as long as a language model's would."""
