"""Breakers: all processes stop calling what keeps failing, and one at a time tries whether it works again."""
