"""Native executors' common part: how native code is written, compiled, kept and called, for all kinds of devices."""
