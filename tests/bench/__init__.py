"""What the operator costs, measured against Kubernetes alone: `python -m bench`. Ratios are from one run."""
