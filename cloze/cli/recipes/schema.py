"""`cloze schema`: a JSON schema with which editors complete and check recipes."""

from __future__ import annotations

import typer

from cloze.cli.options import WithFiles


def command(with_files: WithFiles = None) -> None:
    """Print a JSON schema of recipes: cloze schema > cloze.schema.json

    Editors with yaml-language-server then complete and check each YAML file in this folder that begins with
    `# yaml-language-server: $schema=cloze.schema.json`, as the recipes that cloze show prints do.
    """
    import json

    from cloze.recipe.json_schema import recipe_schema
    from cloze.recipe.user_files import import_files

    import_files(with_files or [])
    typer.echo(json.dumps(recipe_schema(), ensure_ascii=False, indent=1))
