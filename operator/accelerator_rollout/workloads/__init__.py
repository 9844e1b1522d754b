"""What differs between workload kinds, behind one protocol."""
