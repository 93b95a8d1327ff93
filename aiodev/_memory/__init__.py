"""Device memory: buffers, the caching allocator over any backend's raw memory, its statistics, and admission by lease."""
