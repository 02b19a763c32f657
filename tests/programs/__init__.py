"""Random programs with loops: what the field has, small, reproducible from a seed.

`generate.program(seed)` makes a model and inputs for it; `check.differences` optimizes it for both targets and
compares original and rewritten in every engine; `shrink.shrink` makes a differing model smaller. To see one program,
before and after, or to run many:

    PYTHONPATH=tests python -m programs --seed 17
    PYTHONPATH=tests python -m programs --first 0 --count 2000
"""
