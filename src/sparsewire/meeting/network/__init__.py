"""What a rank knows of its network: interfaces, routes, lanes, the speed of the link."""
