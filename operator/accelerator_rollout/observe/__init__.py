"""Watches the world: the only place that imports kopf."""
