"""First: what only hides a recurrence goes."""
