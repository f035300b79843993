"""Completes a recipe that starts from a checkpoint from the checkpoint's description.

If a network comes from a checkpoint, the checkpoint supplies the order, reading, templates and heads that the recipe leaves out,
as it supplies the shape (`origins.resolve_networks`). The result is an ordinary recipe.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from cloze.changes import stacks_of
from cloze.checkpoint.annotators import complete_annotators, describe_annotators, read_layers
from cloze.checkpoint.build import Loaded
from cloze.checkpoint.new_heads import plain_head
from cloze.decoding.reader import Reader
from cloze.decoding.reader_and_head import predicting_heads
from cloze.decoding.vectors.embedding import HEAD, sentence_head
from cloze.document import Node, from_data
from cloze.errors import CheckpointError, UserError
from cloze.exercises.companions.answer import AnswerForm, ByForm, Lesson
from cloze.interop import Annotating
from cloze.interop.architecture import ARCHITECTURES
from cloze.objectives.labels.head_from_checkpoint import HeadFacts, HeadFromCheckpoint, Predicts
from cloze.reading import FROM_CHECKPOINT
from cloze.recipe.builders import build
from cloze.recipe.faults import Faults
from cloze.recipe.grammar import RESERVED
from cloze.recipe.parts import builder_of, class_of
from cloze.recipe.recipe import PartSpec, as_plain_data
from cloze.recipe.schema import arguments_of_part, check_value, expand_part, read_part
from cloze.tasks.kinds.text_to_text import writing_form
from cloze.training.schedule.freezing import parameters_by_depth

#: Separates two texts if a network knows no pairs and its template closes no text: the first of these that it knows. GPT has a
#: new token there (Radford et al., 2018, §3.3).
DELIMITERS = ("[SEP]", "[EOS]", "[BOS]")


@dataclass(frozen=True)
class CheckpointFacts:
    """The facts about a checkpoint that a recipe needs.

    `spells`: the network reads the characters of words. `lookups` are the edits that compute its further inputs from `tables`.
    `delimiter` may separate two texts. `unrelated` describes a network in which no word sees another.
    """

    folder: str
    network: Mapping[str, Any]  # {part: arguments}
    reading: Mapping[str, Any]
    order: str
    head_facts: HeadFacts
    architecture: str | None = None
    spells: bool = False
    lookups: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    tables: Mapping[str, str] = field(default_factory=dict)
    annotators: Mapping[str, Annotating] = field(default_factory=dict)  # of the labelled layers that lookups read
    form: Callable[[], AnswerForm] | None = None  # how it generates a text from a text; raises if it cannot
    delimiter: tuple[str, ...] = ()
    unrelated: str | None = None

    @classmethod
    def of(cls, loaded: Loaded) -> CheckpointFacts:
        """The description of a loaded checkpoint."""
        network: Any = loaded.network
        heads: list[Any] = list(loaded.heads.values())
        settings = dataclasses.asdict(loaded.reading)
        reading = {
            name: list(value) if isinstance(value, tuple) else value for name, value in settings.items() if value is not None
        }
        architecture, plain = ARCHITECTURES.get(loaded.imported.architecture or ""), plain_head(loaded)
        tables = () if architecture is None else architecture.heads
        head_facts = HeadFacts(
            order=loaded.order, layers=len(network.depth_groups()) - 1,
            heads={table.role: table.new_arguments() for table in tables if table.role in ("classifier", "chooser")},
            plain=None if plain is None else (plain.transform, plain.norm.eps),
            sums_up=any("summary" in head.reads for head in heads),
            pooled=network.pooled, given=_layers(loaded), predicts=_predicts(loaded), embedding=_embedding(loaded),
        )
        model = loaded.imported.model
        return cls(
            str(loaded.folder), {model.part: dict(loaded.network_arguments)}, reading, loaded.order, head_facts,
            loaded.imported.architecture, "characters" in network.takes, tuple(model.input_edits),
            {name: table.part for name, table in model.tables.items()}, model.annotators, partial(writing_form, loaded),
            tuple(role for role in DELIMITERS if role in loaded.tokenizer.roles)[:1],
            network.sees["hidden"] if network.gives["hidden"].sees == "itself" else None,
        )

    def with_layers_of(self, network: Node) -> CheckpointFacts:
        """The same for a network of the recipe that keeps only some of the layers (`change: [keep_layers]`)."""
        ((part, arguments),) = self.network.items()
        if part not in network.value or not network.value[part].is_mapping:
            return self
        origin_stacks, here = stacks_of(part, arguments), stacks_of(part, network.value[part].plain())
        if origin_stacks == here:
            return self
        fewer = next(iter(origin_stacks.values())) - next(iter(here.values()))  # of the stack that texts are read by
        old = self.head_facts
        head_facts = old._replace(layers=old.layers - fewer, given=old.given and old.given - fewer)
        return replace(self, network={part: {**arguments, **here}}, head_facts=head_facts)

    def pair(self, single: str, recipe: str) -> str:
        """The template of two texts if only that of a `single` one is known: the token that closes one text separates two, as in
        transformers' tokenizer of T5. A `CheckpointError` if no word of one text could see the other.
        """
        if self.unrelated is not None:
            raise CheckpointError(
                f"{self.folder}: {recipe} reads two texts in one row. In {next(iter(self.network))} {self.unrelated}.\n"
                "  Use a checkpoint whose network reads words in context, such as bert or lstm.\n"
                "  To read both texts as one bag of words: --set 'reading.pair=\"{A} {B}\"'"
            )
        between = single.partition("{A}")[2].split()[:1] or self.delimiter
        return single.replace("{A}", " ".join(["{A}", *between, "{B}"]))


def _layers(loaded: Loaded) -> int:
    """How many layers the network returns, embeddings included; 0 if it returns only its last layer."""
    if "layers" not in loaded.network.gives:  # type: ignore[operator]
        return 0
    reader = Reader.of(loaded)
    with torch.inference_mode():
        return len(reader.states(reader.batch(reader.encode(["a"])), {"layers"})["layers"])


def depth_groups(loaded: Loaded) -> list[str | int]:
    """The depth groups that heads can train through what they read of a text, named as in `train:`.

    Left out are groups without parameters of their own, frozen ones, and parts that no state of a text depends on, such as the
    decoder of a translator whose encoder is classified.
    """
    network: Any = loaded.network
    reader = Reader.of(loaded)
    states = reader.states(reader.batch(reader.encode(["a a"])), {"hidden", "summary"} & network.gives.keys())
    groups = [[p for p in group if p.requires_grad] for group in parameters_by_depth(network)]
    flat = [p for group in groups for p in group]
    total = torch.stack([state.float().sum() for state in states.values()]).sum()
    read = {id(p) for p, g in zip(flat, torch.autograd.grad(total, flat, allow_unused=True), strict=True) if g is not None}
    names = ["embeddings", *range(len(groups) - 1)]
    return [name for name, group in zip(names, groups, strict=True) if any(id(p) in read for p in group)]


def _predicts(loaded: Loaded) -> Predicts | None:
    """The first head that predicts tokens; in an encoder-decoder, it reads the decoder's states."""
    network: Any = loaded.network
    for name in predicting_heads(loaded):
        record = loaded.imported.model.heads[name]
        return Predicts(name, record.part, record.arguments, network.writes or next(iter(record.read.values()), None))
    return None


def _embedding(loaded: Loaded) -> Mapping[str, Any] | None:
    """The arguments of the head that gives vectors of texts; None if there is none."""
    arguments: Mapping[str, Any] = loaded.imported.model.heads[HEAD].arguments if sentence_head(loaded) is not None else {}
    return arguments or None


def put_onto(root: Node, facts_by_name: Mapping[str, CheckpointFacts], faults: Faults) -> None:
    """Complete an expanded recipe in place; `facts_by_name` are those of its networks' checkpoints, by the
    names in `from:`.

    Texts are read as the exported network's checkpoint reads them. An objective that the checkpoint decides is decided by that
    of its own network.
    """
    networks = root.value.get("networks")
    network_facts: dict[str, CheckpointFacts] = {}
    for name, node in networks.items() if networks is not None else ():
        written_node = node.value.get("from") if node.is_mapping else None
        if written_node is None or written_node.value not in facts_by_name:
            continue
        own_facts = network_facts[str(name)] = facts_by_name[written_node.value].with_layers_of(node)
        same = all(part in node.value and node.value[part].plain() == arguments for part, arguments in own_facts.network.items())
        if own_facts.architecture is not None and "architecture" not in node.value and same:
            node.put("architecture", Node(own_facts.architecture, node.where))
    if not network_facts:
        return
    where = root.where
    export = root.value.get("export")
    exported_facts = network_facts.get(str(export.value) if export is not None else "", next(iter(network_facts.values())))
    written_node = root.value.get("reading")
    if written_node is None:
        root.put("reading", from_data(dict(exported_facts.reading), where))
    for key, value in exported_facts.reading.items():
        if written_node is not None and key not in written_node.value:
            written_node.put(key, from_data(value, where))
    mixture = root.value.get("mixture")
    entries = [("", root), *((f"mixture.{name}.", entry) for name, entry in mixture.items())] if mixture else [("", root)]
    _add_pair_template(root, [entry for _, entry in entries], exported_facts)
    for prefix, entry in entries:
        _complete_entry(root, entry, prefix, exported_facts, network_facts, faults)
    _complete_inputs(root, [entry for _, entry in entries], exported_facts, faults)


def _add_pair_template(root: Node, entries: list[Node], facts: CheckpointFacts) -> None:
    """Write the template of pairs if records have two texts and the checkpoint knows no pairs."""
    reading = root.value["reading"]
    has_pairs = any(_texts_at_edits(root, entry)[-1:] == [2] for entry in entries)
    if has_pairs and not reading.plain().get("pair"):
        pair = facts.pair(str(reading.plain()["single"]), str(root.value["name"].value))
        reading.put("pair", from_data(pair, root.where))


def _complete_inputs(root: Node, entries: list[Node], facts: CheckpointFacts, faults: Faults) -> None:
    """Add the inputs that the network reads besides tokens: the spelling of words, and look-ups in its tables."""
    if facts.spells:
        for _, source in root.value["sources"].items():
            for part, arguments in source.items():
                if class_of("source", part).builds_store and "new_words" in arguments_of_part("source", part):
                    arguments.put("new_words", Node(True, root.where))
    for name, part in facts.tables.items():
        if root.value.get("tables") is None:
            root.put("tables", Node({}, root.where))
        if name not in root.value["tables"].value:
            table = from_data({part: {}}, root.where)
            expand_part("table", table, f"tables.{name}", faults)
            root.value["tables"].put(name, table)
    annotated = _annotate(root, facts, faults)
    for entry in entries:
        edits = _edits(entry)
        edits[:] = [edit for edit in edits if not _chooses_absent(edit, _items(root, entry))]
        frames = [frame for frame in map(_frame_arguments, edits) if frame is not None]
        views = dict.fromkeys(str(frame.value["in"].value) if "in" in frame.value else "main" for frame in frames)
        edit_names = {str(name) for item in edits if item.part_kind is not None for name in item.value}
        for name, arguments in facts.lookups if edits else ():
            if name in edit_names:
                continue  # the recipe does it itself
            layers = set(read_layers([PartSpec("edit", name, arguments)]))
            if not layers <= annotated[_source(root, entry)]:
                continue  # nobody annotates these texts
            if class_of("edit", name).selects:
                if str(arguments.get("set")) in _items(root, entry):
                    edit = from_data({name: dict(arguments)}, root.where)
                    expand_part("edit", edit, "exercise", faults)
                    last = max((index for index, item in enumerate(edits) if _frame_arguments(item) is not None), default=-1)
                    edits.insert(last + 1, edit)
                continue
            for view in ("main",) if layers else views or ("main",):
                edit = from_data({name: {**arguments, **({} if view == "main" else {"in": view})}}, root.where)
                expand_part("edit", edit, "exercise", faults)
                edits.append(edit)


def _chooses_absent(edit: Node, sets: frozenset[str]) -> bool:
    """Whether an edit chooses items of a set that the source does not have, as where a task is learned from texts alone."""
    name = _part_name(edit)
    if not name or not class_of("edit", name).selects:
        return False
    chosen_set = edit.value[name].value.get("set")
    return chosen_set is not None and str(chosen_set.value) not in sets


def _annotate(root: Node, facts: CheckpointFacts, faults: Faults) -> dict[str, set[str]]:
    """Give every source of labelled text the annotators of the checkpoint that mark any text. Returns the layers of each."""
    annotators = describe_annotators(facts.annotators)
    layers = set(read_layers([PartSpec("edit", name, arguments) for name, arguments in facts.lookups]))
    layers_by_source: dict[str, set[str]] = {}
    for name, source in root.value["sources"].items():
        layers_by_source[str(name)] = set()
        for part, arguments in source.items():
            if source.part_kind is None or "annotate" not in arguments_of_part("source", part):
                continue
            node = arguments.value.get("annotate")
            existing = {} if node is None or node.value is None else node.plain()
            layer_annotators = {**annotators, **complete_annotators(existing, facts.annotators)}
            arguments.put("annotate", from_data(layer_annotators or None, root.where))
            expand_part("source", source, f"sources.{name}", faults)
            layers_by_source[str(name)] = {*annotators, *existing} & layers
    return layers_by_source


def _source(root: Node, entry: Node) -> str:
    """The name of the source of an entry."""
    node = entry.value.get("source")
    return str(node.value if node is not None else next(iter(root.value["sources"].value)))


def _items(root: Node, entry: Node) -> frozenset[str]:
    """The sets of items that the source of an entry reads."""
    sources = root.value["sources"].value[_source(root, entry)]
    nodes = [arguments.value.get("items") for _, arguments in sources.items() if arguments.is_mapping]
    return frozenset(str(name) for node in nodes if node is not None and node.is_mapping for name in node.value)


def _edits(entry: Node) -> list[Node]:
    """The edits of an entry, which can be added to."""
    exercise = entry.value.get("exercise")
    return exercise.value if exercise is not None and exercise.is_list else []


def _part_name(item: Node) -> str:
    """The name of the part that an edit or an objective writes; empty if it writes none."""
    return "" if item.part_kind is None else next((str(key) for key, inner in item.items() if inner.is_mapping), "")


def _frame_arguments(item: Node) -> Node | None:
    """The arguments of an edit that lays out texts; None for any other."""
    name = _part_name(item)
    return item.value[name] if name and class_of("edit", name).frames else None


def _complete_entry(
    root: Node, entry: Node, prefix: str, facts: CheckpointFacts, network_facts: Mapping[str, CheckpointFacts], faults: Faults
) -> None:
    edits, texts = _edits(entry), _texts_at_edits(root, entry)
    replacements = [_replacements(item, root, count, facts, faults) for item, count in zip(edits, texts, strict=True)]
    edits[:] = [edit for nodes, _ in replacements for edit in nodes]
    lessons = [lesson for _, lesson in replacements if lesson is not None]
    order = next((lesson.order for lesson in lessons), None)
    for lesson in lessons:
        root.value["reading"] = from_data({**root.value["reading"].plain(), **lesson.reading}, root.where)
    if "order" not in entry.value and (order is not None or not prefix):
        entry.put("order", from_data(order or facts.order, root.where))
    for network, objectives, path in _objective_lists(entry, prefix):
        decisive = network_facts.get(network, facts)
        objectives.value = [
            _resolved(item, f"{path}[{index}]", decisive, faults) for index, item in enumerate(objectives.value)
        ]


def _texts_at_edits(root: Node, entry: Node) -> list[int]:
    """How many texts a row has at each edit of an entry that can add a frame."""
    names = [_part_name(item) for item in _edits(entry)]
    apart = next((index for index, name in enumerate(names) if name and class_of("edit", name).separates), len(names))
    return [_texts_of_records(root, entry) if index < apart else 1 for index in range(len(names))]


def _replacements(item: Node, root: Node, texts: int, facts: CheckpointFacts, faults: Faults) -> tuple[list[Node], Lesson | None]:
    """The edits that replace one: its lesson if the checkpoint decides, else the result of `_own_frame`."""
    name = _part_name(item)
    if not name or not issubclass(class_of("edit", name), ByForm) or facts.form is None:
        return _own_frame(item, root, texts, faults), None
    own_arguments = {str(key): node.plain() for key, node in item.value[name].items() if key not in RESERVED["edit"]}
    chooser: Any = None
    with faults.catching(item.where, f"exercise.{name}"):
        chooser = builder_of("edit", name)(**own_arguments) if _accepts("edit", name, own_arguments) else None
    lesson = None if chooser is None else chooser.chosen(facts.form)
    if lesson is None:
        return [item], None
    nodes = [from_data({part: arguments}, item.where) for part, arguments in lesson.edits]
    for node in nodes:
        expand_part("edit", node, "exercise", faults)
    return nodes, lesson


def _own_frame(item: Node, root: Node, texts: int, faults: Faults) -> list[Node]:
    """The checkpoint's own frame in place of `frame: reading`, and the edit that marks the summary token; any other edit is
    unchanged."""
    inner = _frame_arguments(item)
    template = None if inner is None else inner.value.get("template")
    if inner is None or template is None or template.value != FROM_CHECKPOINT:
        return [item]
    reading = root.value["reading"].plain()
    inner.put("template", Node(str(reading["single" if texts == 1 else "pair"]), template.where))
    if reading.get("summary", "first") == "first":
        return [item]
    view = {key: node.plain() for key, node in inner.items() if key == "in"}
    summary = from_data({"summarise": {"by": reading["summary"], **view}}, item.where)
    expand_part("edit", summary, "exercise", faults)
    return [item, summary]


def _texts_of_records(root: Node, entry: Node) -> int:
    """How many texts the records of an entry have."""
    source = root.value["sources"].value[_source(root, entry)]
    arguments: dict[Any, Node] = next((node.value for _, node in source.items() if node.is_mapping), {})
    second = arguments.get("text_b")
    return 1 if second is None or second.value is None else 2


def _objective_lists(entry: Node, prefix: str) -> list[tuple[str, Node, str]]:
    """The network of every list of objectives (empty: the only one), the list, and its path."""
    lists = [("", entry.value["objectives"], f"{prefix}objectives")] if "objectives" in entry.value else []
    passes = entry.value.get("passes")
    for index, pass_ in enumerate(passes.value if passes is not None and passes.is_list else ()):
        if pass_.is_mapping and "objectives" in pass_.value:
            network = pass_.value.get("network")
            name = "" if network is None else str(network.value)
            lists.append((name, pass_.value["objectives"], f"{prefix}passes[{index}].objectives"))
    return [(name, node, path) for name, node, path in lists if node.is_list]


def _resolved(item: Node, path: str, facts: CheckpointFacts, faults: Faults) -> Node:
    """The objective in place of one that the checkpoint decides; any other is unchanged."""
    name = _part_name(item)
    if not name or not issubclass(class_of("objective", name), HeadFromCheckpoint):
        return item
    common = {key: item.value[name].value[key].plain() for key in RESERVED["objective"] if key in item.value[name].value}
    read = read_part(item.copy(), path, Faults())  # faults are reported when the recipe is read
    if read is None:
        return item
    try:
        part, arguments = build(builder_of("objective", name), as_plain_data(read.arguments), {}).resolve(facts.head_facts)
    except UserError as error:
        raise type(error)(f"{facts.folder}: {error}") from None
    replacement = from_data({part: {**arguments, **common}}, item.where)
    expand_part("objective", replacement, path, faults)
    return replacement


def _accepts(kind: str, name: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a part accepts these arguments; if not, they are reported when the recipe is read."""
    accepted = arguments_of_part(kind, name)
    try:
        for key, value in arguments.items():
            check_value(accepted[key].annotation, value)
    except (KeyError, ValueError):
        return False
    return True
