"""Which rows of a tensor an iteration reads, writes or appends."""
