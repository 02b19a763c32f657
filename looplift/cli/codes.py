"""How commands end."""

EQUAL, DIFFERENT, FAILED, HARDLY_TESTED, INTERRUPTED = 0, 1, 2, 3, 130
"""Done, or equal; two models differ; it could not be done, with one line on standard error; two models were
hardly tested, with one line there, too; interrupted."""
