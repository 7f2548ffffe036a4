"""Pages: what people see of alerts on the dashboard, and the forms with which they act there."""
