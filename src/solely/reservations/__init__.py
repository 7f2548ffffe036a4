"""Reservations: one caller at a time may send, once per quiet window and within the limits."""
