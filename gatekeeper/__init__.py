"""Gates KV-cache changes of LLM serving."""
