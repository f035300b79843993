"""Labelled text: files → a store of records → examples with their answers.

A record is a row of a file: one text or two, and an answer. The kind of answer (a class, a label for each word) defines how the
answer is read and stored, and which fields it gives. To add one, write a file here with a class under `@register("answer",
name)`, and its import below. No contract test covers it; write tests as in tests/corpus/test_records.py.
"""

from cloze.corpus.records.answer import Answer, Record
from cloze.corpus.records.build_records import build_records
from cloze.corpus.records.chains import ChainAnswers
from cloze.corpus.records.check import RecordFindings, check_records
from cloze.corpus.records.choice import ChoiceAnswer
from cloze.corpus.records.classes import ClassAnswer, ClassOrNone
from cloze.corpus.records.marked import ClassOfSpans
from cloze.corpus.records.match import MatchAnswer
from cloze.corpus.records.no_answer import NoAnswer
from cloze.corpus.records.number import NumberAnswer
from cloze.corpus.records.record_source import BoundRecords, Records
from cloze.corpus.records.record_store import RecordStore
from cloze.corpus.records.relevance import CandidatesAnswer, RelevanceAnswer
from cloze.corpus.records.scored import ScoredClassesAnswer
from cloze.corpus.records.scores import ScoresAnswer
from cloze.corpus.records.several import ClassesAnswer
from cloze.corpus.records.spans import SpanAnswer
from cloze.corpus.records.texts import OpenAnswer, TextAnswer
from cloze.corpus.records.tree import TreeAnswers
from cloze.corpus.records.words import WordAnswers

__all__ = [
    "Answer", "BoundRecords", "CandidatesAnswer", "ChainAnswers", "ChoiceAnswer", "ClassAnswer", "ClassOfSpans",
    "ClassOrNone", "ClassesAnswer", "MatchAnswer", "NoAnswer", "NumberAnswer", "OpenAnswer", "Record", "RecordFindings",
    "RecordStore", "Records", "RelevanceAnswer", "ScoredClassesAnswer", "ScoresAnswer", "SpanAnswer", "TextAnswer", "TreeAnswers",
    "WordAnswers", "build_records", "check_records",
]
