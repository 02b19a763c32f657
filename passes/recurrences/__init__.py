"""How each recurrence is built as a node and written in standard operators: one file each."""
