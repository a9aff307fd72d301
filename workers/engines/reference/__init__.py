"""The second engine: an OpenAI-compatible server around Hugging Face transformers, with cache layers of our own.

`engine` is what the worker sees of it; the rest runs in the server's process, `python -m workers.engines.reference`.
"""
