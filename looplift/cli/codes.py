"""How commands end."""

EQUAL, DIFFERENT, FAILED, HARDLY_TESTED, UNEXPECTED, INTERRUPTED = 0, 1, 2, 3, 4, 130
"""Done, or equal; two models differ; it could not be done, with one line on standard error; two models were
hardly tested, with one line there, too; a fault of looplift's own, with a line that asks to report it; interrupted."""
