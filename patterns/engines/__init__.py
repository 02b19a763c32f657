"""What is known of engines: where they round differently though they compute the same. One file per engine."""
