"""Generated cluster states for which our verdict is compared with the real scheduler's."""
