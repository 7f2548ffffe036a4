"""Watermarks: how far a piece of work has come; a watermark only moves forward."""
