"""The forms that recurrences share in standard operators."""
