"""Do the templates of a recipe name roles that there are, and the parts of a row? `check.py` calls this."""

from __future__ import annotations

from cloze.document import Where
from cloze.errors import propose
from cloze.recipe import parts
from cloze.recipe.faults import Faults
from cloze.recipe.recipe import OWN, Recipe


def check_templates(recipe: Recipe, faults: Faults) -> None:
    """Add a fault for every template, of `reading` or of an edit, that names something else."""
    from cloze.exercises.frame import split_template
    from cloze.text.roles import ROLES

    where = next((text.tokenizer.where for text in recipe.texts.values()), Where(recipe.name))
    templates = [(where, f"reading.{key}", vars(recipe.reading)[key]) for key in ("single", "pair")]
    for entry in recipe.entries.values():
        for edit in entry.exercise:
            if parts.class_of("edit", edit.part.name).frames:
                templates.append((edit.part.where, f"{edit.part.path}.template", edit.part.arguments["template"]))
    for location, path, template in templates:
        if not isinstance(template, str) or template == OWN:
            continue
        pieces = split_template(template)
        for kind, text_piece in pieces:
            if kind == "role" and text_piece not in ROLES:
                faults.add(location, path, f"{text_piece} is not a role.", propose(text_piece, ROLES))
        part_names = {piece for kind, piece in pieces if kind == "part"}
        required = {"reading.single": {"A"}, "reading.pair": {"A", "B"}}.get(path, set())
        if required - part_names:
            missing = " and no ".join(f"{{{name}}}" for name in sorted(required - part_names))
            faults.add(location, path, f"{template!r} has no {missing}.")
