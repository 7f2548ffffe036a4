"""Telling: a notification's way from the outbox to the publishers, whoever dies or is away meanwhile."""
