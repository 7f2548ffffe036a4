"""Suppression: what keeps an alert from sending a notification, why and for how long; and what it depends on."""
