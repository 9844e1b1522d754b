"""The only place that writes to the API server."""
