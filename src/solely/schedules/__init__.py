"""Schedules: work that is due again and again; each tick happens once, over any number of replicas."""
