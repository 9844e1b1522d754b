"""Pure decisions over immutable snapshots."""
