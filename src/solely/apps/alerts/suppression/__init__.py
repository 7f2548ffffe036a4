"""Deciding: what is kept from people although it came in, why and for how long, and what is told together."""
