"""What a kernel's source says before it is compiled."""
