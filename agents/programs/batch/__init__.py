"""`gpuwright-batch`: sends the lines of JSONL files to a model server at low priority, and answers each line once."""
