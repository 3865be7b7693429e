"""How ranks meet: they find each other, prove who they are, agree, and connect."""
