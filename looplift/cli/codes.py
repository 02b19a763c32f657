"""How commands end."""

EQUAL, DIFFERENT, FAILED, INTERRUPTED = 0, 1, 2, 130
"""Done, or equal; two models differ; it could not be done, with one line on standard error; interrupted."""
