"""The bundled accuracy tasks: lm-eval YAML files, their items as JSON lines, and the loader that lm-eval calls."""
