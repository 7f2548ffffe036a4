"""Inputs: what senders of alerts speak, read as alerts, and answered so that each of them loses nothing."""
