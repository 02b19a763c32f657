"""Recurrence nodes in the operators of ``ai.onnx`` alone, for engines that do not know ``ai.looplift``.

One file per op says which forms it has and when each is right; the forms that they share (`running_sum`, `scan_form`,
`unrolled`) have a file each. Every form gives the same bits as the op on ONNX Runtime's CPU provider, whose CumSum
copies the first element and adds the others one by one, in order. The standard leaves that order open: an engine that
adds otherwise rounds otherwise.
"""
