"""The API of operators: windows, history, silences, acknowledgements, and why an alert was not sent."""
