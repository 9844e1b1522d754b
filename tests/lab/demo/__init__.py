"""The demonstration: the guideline's workload, rolled by a plain Deployment and by us, on a real control plane.

`python -m lab.demo` (or `make demo`). The flow: `stage` brings everything up, `acts` play, `facts` and `book` say what can be
seen, `view` shows it meanwhile, `journeys` measures it afterwards, `checks` judges it, `summary` tells it.
"""
