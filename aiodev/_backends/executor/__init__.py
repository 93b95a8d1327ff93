"""What the native executors of all kinds of devices share: how native code is written, compiled, kept and called."""
