"""Reservations: the right to send, for one caller at a time, once per quiet window and within limits."""
