"""How the codes of a round are added: ways of equal interface, and the model that chooses one."""
