"""How ranks meet: they find each other, prove their identity, agree, and connect."""
