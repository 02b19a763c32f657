"""The recurrences that are recognised: one file each."""
