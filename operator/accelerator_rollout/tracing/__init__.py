"""One trace a rollout, told from the times in its status."""
