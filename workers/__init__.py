"""Celery workers that launch engines and measure them."""
