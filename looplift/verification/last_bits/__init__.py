"""Which differences are an engine's choice: where they may come from, and how large they may be."""
