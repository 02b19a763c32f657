"""What is known of engines: where they round differently though they compute the same. A folder, and a list, each."""
