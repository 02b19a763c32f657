"""Graph to graph: one pass a file, and the pipeline that orders them."""
