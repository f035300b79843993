"""Recipes fitted to a budget, a text and a task, and what a budget is expected to buy: the laws, each with its reason.

May import checkpoints and the recipe language.
Its contract is tested in tests/assembly.
"""
