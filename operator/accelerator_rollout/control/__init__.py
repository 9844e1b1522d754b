"""When to decide: the keyed queue, the loop, leadership."""
