"""The JSON API under /v1: one module per noun, each with its handlers and, at the end, its ROUTES."""
