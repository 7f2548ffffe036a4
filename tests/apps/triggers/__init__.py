"""Tests of the task-trigger API."""
