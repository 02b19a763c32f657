"""Fourth: lists, grown and filled tensors become stacked outputs."""
