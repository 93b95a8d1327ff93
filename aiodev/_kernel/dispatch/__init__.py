"""From a call of a kernel to a submission: signatures, specializations, argument blocks."""
