"""Flows: decisions without I/O. A flow is a generator that yields ops and the requests of `requests.py`."""
