"""What to ask of a method and a model: how good it is, and which layers kv may re-route."""
