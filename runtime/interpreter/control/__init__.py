"""Loop, Scan, If and SequenceMap: how they are emitted, and what their code calls."""
