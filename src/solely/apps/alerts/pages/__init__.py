"""Pages: the dashboard's views of alerts, and their forms."""
