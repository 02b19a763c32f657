"""Questions about a loop. Reads the IR, never changes it."""
