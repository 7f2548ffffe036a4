"""Transactions: marks and results inside the caller's own transaction; they commit or roll back with its rows."""
