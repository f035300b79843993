"""Changes that make a network smaller: fewer heads, fewer weights, weights and activations of few bits, dropped layers."""
