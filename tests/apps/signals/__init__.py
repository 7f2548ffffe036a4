"""Tests of signals. `pollers` has processes that poll the same data; `sinks` is where they write signals."""
