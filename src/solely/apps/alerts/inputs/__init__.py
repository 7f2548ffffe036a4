"""Inputs: what senders of alerts speak already, read as alerts, and answered so that each of them loses nothing."""
