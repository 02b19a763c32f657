"""Questions about one loop: how long it runs, what depends on what, how its carries evolve."""
