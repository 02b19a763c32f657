"""What every pass uses to write: nodes, edits, copies, names, inferred types."""
