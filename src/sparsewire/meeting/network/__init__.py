"""A rank's knowledge of its network: interfaces, routes, lanes, the speed of the link."""
