"""The worker: what one process has to work with, knows of the last moment and has under way."""
