"""Native executors' common part: what the executors of all kinds of devices have in native code."""
