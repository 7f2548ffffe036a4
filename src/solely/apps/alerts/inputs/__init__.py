"""Inputs: the formats and endpoints of senders. Each gets responses that it understands, so that no alert is lost."""
