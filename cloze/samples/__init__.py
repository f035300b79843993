"""Sample texts written for this project, data only, a few kB each: english, french, dutch, chinese and its lists, english-french.
May import: nothing.
Add one: a text file of our own words, one sentence per line, a blank line between documents, and its name in the line above.
Contract: tests/recipes/.
"""
