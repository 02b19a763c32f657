"""Third: updates of states in the form that recurrences are recognised in."""
