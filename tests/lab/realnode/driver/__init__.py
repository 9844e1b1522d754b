"""A DRA driver for a real kubelet, as a process of its own: `python -m lab.realnode.driver`.

It does what a good driver does and no more: above all it refuses nothing by itself. A device that is asked for twice is
prepared twice, and the ledger shows it.
"""
