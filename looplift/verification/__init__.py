"""Checks that a rewritten model gives what the original gives: inputs, engines, comparison."""
