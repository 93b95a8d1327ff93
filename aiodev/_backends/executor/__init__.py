"""What the native executors of all backends share: native code, its translation and cache, memory, words."""
