"""Second: loops that end by a test become loops that are counted."""
