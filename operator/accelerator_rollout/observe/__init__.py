"""Watches the cluster and keeps what it sees as small records, so that deciding needs no API call.

Kopf brings every event (`handlers`); `project` makes a record of it, `store` keeps the newest one of each object and
says which AcceleratorRollouts it concerns, and `snapshots` collects for one of them all that a decision may look at.
Watches lose things: `resync` lists what is there, removes what is gone, and says whether the store may be believed.
This is the only package that imports kopf, and nothing in it writes to the cluster.
"""
