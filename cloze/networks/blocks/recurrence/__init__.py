"""Recurrent layers, what they share, and their dropouts.

May import the other blocks. To add one: a file with one autograd function and its module.
Contract: tests/networks.
"""
