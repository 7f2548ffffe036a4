"""GitHub, as a forge."""
