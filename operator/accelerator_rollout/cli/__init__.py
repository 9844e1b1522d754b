"""Short-lived commands."""
