"""Our own kind: models, conditions, and the CustomResourceDefinition generated from them."""
