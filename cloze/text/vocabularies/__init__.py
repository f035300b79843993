"""How vocabularies are trained, extended and measured.

May import what `cloze.text` may. To add one: a file here with a function of counts of words.
Contract: tests/text.
"""
