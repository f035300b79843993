"""Sample texts written for this project, data only, a few kB each: english, french, dutch, chinese and its lists, english-french,
english-words (related words, one pair per line),
chinese_facts (subject, predicate, object) about what chinese.txt tells of,
vectors of frequent words of english.txt (trained on it with cloze: word2vec-skipgram, width 32), and english_mentions, where
english.txt names twenty things, whose ids are words that have such a vector; entities.tsv has their names and types,
candidates.tsv the words for them, with other candidates of our own.
May import: nothing.
To add a text: a file of our own words, one sentence per line, a blank line between documents, and its name in the line above.
Contract: tests/recipes/.
"""
