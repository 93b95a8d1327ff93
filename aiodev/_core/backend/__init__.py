"""What a device is to the rest: the interface of backends, their registry, and starting them."""
