"""Evaluations without fine-tuning: pairs of words, analogies, facts, links, senses, pictures.

May import what `cloze.tasks` may. To add one: a file here with a function that returns figures, and its mode in
`cloze/cli/train/evaluate.py`.
Contract: tests/tasks.
"""
