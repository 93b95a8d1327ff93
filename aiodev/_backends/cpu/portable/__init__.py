"""The portable executor: plain Python threads, where native code cannot run."""
