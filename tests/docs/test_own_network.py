"""Every recipe on the pages is read; the network of docs/language.md is checked, member by member, and trained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import cloze
from cloze.checkpoint.checks.check import check_recipe
from cloze.cli.main import describe_error, main
from cloze.document import read_yaml
from cloze.errors import RecipeError
from cloze.recipe.builders import build
from cloze.recipe.load import load_recipe
from cloze.recipe.parts import builder_of
from cloze.recipe.user_files import import_files

from . import test_tour
from .test_blocks import BLOCKS, ROOT, Block, blocks
from .test_tour import run_commands

PAGE = ROOT / "docs" / "language.md"
RECIPES = [block for block in BLOCKS if block.language == "yaml"]
#: Keys of a whole recipe that a part of one replaces.
REPLACED = {"networks": ["network"], "sources": ["corpus"], "passes": ["objectives"], "task": ["reading"]}
SIZES = "layers: 4, width: 128", "layers: 1, width: 8"


def whole_recipe(code: str) -> dict[str, Any]:
    """A recipe as it is; a part of one with the other keys of the first recipe of the page."""
    base = read_yaml(next(block.code for block in blocks(PAGE) if block.language == "yaml"), "language.md").plain()
    part = read_yaml(code, "language.md").plain()
    part = {"exercise": part} if isinstance(part, list) else part
    if "name" in part:
        return part
    kept = {key: value for key, value in base.items() if all(key not in REPLACED.get(name, ()) for name in part)}
    runs = {run["network"] for run in part.get("passes", ())} if "networks" not in part else set()
    return kept | ({"networks": dict.fromkeys(runs, base["network"]), "export": max(runs)} if runs else {}) | part


@pytest.mark.parametrize("block", RECIPES, ids=[block.place for block in RECIPES])
def test_every_recipe_on_the_pages_is_read(block: Block, tmp_path: Path) -> None:
    recipe = whole_recipe(block.code)
    if "convolutions" in str(recipe.get("network")):
        import_files([write_network(tmp_path)])
    if "networks" in recipe:
        recipe.pop("network", None)
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True), encoding="utf-8")
    assert load_recipe(file).name == recipe["name"]


def code_with(text: str) -> str:
    """The block of the page that has a text."""
    return next(block.code for block in blocks(PAGE) if block.language in ("python", "yaml") and text in block.code)


def write_network(folder: Path, **changes: str) -> Path:
    """The example of a network, with some of its text replaced."""
    code = code_with('"network", "convolutions"')
    for before, after in changes.items():
        assert before in code
        code = code.replace(before, after)
    file = folder / "my_network.py"
    file.write_text(code, encoding="utf-8")
    return file


def with_parts(folder: Path, before: str = "", after: str = "") -> tuple[Path, Path]:
    """The examples of an edit and an objective in one file, and the first recipe of the page with both."""
    code = code_with('"edit", "ask_first"') + code_with('"objective", "row_length"').replace(before, after)
    recipe = next(block.code for block in blocks(PAGE) if block.language == "yaml")
    recipe = recipe.replace("  - predict: masked\n", "  - predict: masked\n  - ask_first\n")
    recipe = recipe.replace("tie: true}\n", "tie: true}\n  - row_length: {scale: 0.5}\n")
    recipe = recipe.replace("layers: 4, width: 256, heads: 4", "layers: 1, width: 8, heads: 1")
    (folder / "my_parts.py").write_text(code, encoding="utf-8")
    (folder / "mine.yaml").write_text(recipe, encoding="utf-8")
    return folder / "my_parts.py", folder / "mine.yaml"


@pytest.fixture
def network(tmp_path: Path) -> Any:
    """The network of the page, two layers of width 8."""
    import_files([write_network(tmp_path)])
    torch.manual_seed(0)
    return build(builder_of("network", "convolutions"), {"layers": 2, "width": 8}, {"vocab_size": 50}).eval()


def test_padding_changes_no_state_of_the_network_of_the_page(network: Any) -> None:
    tokens = torch.tensor([[5, 6, 7, 8]])
    want = frozenset({"hidden", "layers", "summary"})
    states = network(want=want, tokens=tokens, order="open")
    padded = network(
        want=want, tokens=torch.tensor([[5, 6, 7, 8, 0, 0]]), order="open", block=torch.tensor([[1, 1, 1, 1, 0, 0]])
    )
    assert {name: tuple(state.shape) for name, state in states.items()} == {
        "hidden": (1, 4, 8), "layers": (3, 1, 4, 8), "summary": (1, 8),
    }  # fmt: skip
    torch.testing.assert_close(padded["hidden"][:, :4], states["hidden"])
    with pytest.raises(RecipeError, match="order: convolutions reads in the order open alone"):
        network(want=want, tokens=tokens, order="left_to_right")


def test_a_text_has_the_same_states_in_the_network_of_the_page_alone_and_packed_with_others(network: Any) -> None:
    want = frozenset({"hidden"})
    texts = [torch.tensor([[5, 6, 7]]), torch.tensor([[8, 9]])]
    packed = network(
        want=want, tokens=torch.tensor([[5, 6, 7, 8, 9, 0]]), order="open", block=torch.tensor([[1, 1, 1, 2, 2, 0]])
    )["hidden"]
    alone = torch.cat([network(want=want, tokens=text, order="open")["hidden"] for text in texts], dim=1)
    torch.testing.assert_close(packed[:, :5], alone)


def test_an_objective_that_requires_a_field_which_a_batch_may_lack_is_refused(tmp_path: Path) -> None:
    """docs/fields.md: without padding, a batch has no `block`."""
    parts, recipe = with_parts(tmp_path, 'takes = frozenset({"tokens"})', 'takes = frozenset({"block"})')
    import_files([parts])
    with pytest.raises(RecipeError) as refused:
        check_recipe(load_recipe(recipe))
    assert str(refused.value) == (
        f'{recipe}:14: objectives[1].row_length: row_length takes "block", which not every batch has (docs/fields.md: 1, 2, … '
        "the packed example a token belongs to, 0 for padding; absent: no padding, one example per row).\n"
        "  Declare it in `optional` in place of `takes`, and use it only if the batch has it."
    )


EMBEDDINGS = 'self.embeddings = nn.Embedding(vocab_size, width)\n        nn.init.normal_(self.embeddings.weight, std=0.02)'
FORWARD = "def forward(self, *, want, tokens, order, block=None, summaries=None):"
WRONG = {
    "no width": ("self.width = width", "", "Convolutions has no `width`: the width of the state `hidden`, a whole number."),
    "a set of states": (
        'gives = reading_kinds("order")', 'gives = {"hidden"}',
        "`gives` of Convolutions is {'hidden'}; expected a mapping from the name of each state to its StateKind, such as "
        'reading_kinds("order").',
    ),
    "no table": (
        EMBEDDINGS, "self.table = nn.Embedding(vocab_size, width)",
        "Convolutions has no `embeddings`: the table of tokens, or a module that has the table as `tokens`.",
    ),
    "a table of another name": (
        EMBEDDINGS, "self.embeddings = nn.ModuleDict({'words': nn.Embedding(vocab_size, width)})",
        "`vector_tables` of Convolutions cannot be computed: AttributeError: 'ModuleDict' object has no attribute 'tokens'.",
    ),
    "no default": (
        FORWARD, FORWARD.replace("block=None", "block"),
        "`forward` requires `block`, and is also called without it: give it a default, block=None.",
    ),
    "an order that it does not take": (
        '"tokens", "order", "block"', '"tokens", "block"',
        '`forward` requires `order`, which `takes` lacks: add "order" there.',
    ),
    "a field that it does not accept": (
        FORWARD, FORWARD.replace("block=None, ", ""),
        '`forward` has no parameter `block`, and is called with it (`takes` has "block").',
    ),
    "a needed field that a batch may lack": (
        "    gives =", '    needs = frozenset({"tokens", "summaries"})\n    gives =',
        'network "main" needs "summaries", which not every batch has (docs/fields.md: ',
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_network_with_a_wrong_member_is_refused_with_what_is_wrong(case: str, tmp_path: Path) -> None:
    before, after, message = WRONG[case]
    import_files([write_network(tmp_path, **{before: after})])
    (tmp_path / "mine.yaml").write_text(code_with("name: my-network"), encoding="utf-8")
    with pytest.raises(RecipeError) as refused:
        check_recipe(load_recipe(tmp_path / "mine.yaml"))
    assert message in str(refused.value)
    assert str(refused.value).count("\n") == 1, "one fault, and the way out"


def test_an_error_inside_a_property_is_reported_as_what_it_is(tmp_path: Path) -> None:
    """`nn.Module` says instead that the property is missing."""
    broken = "self.embeddings = None\n\n    @property\n    def token_tables(self):\n        return self.embeddings.rows"
    layers = "        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))\n"
    file = write_network(tmp_path, **{EMBEDDINGS: broken, layers: ""})
    import_files([file])
    network = builder_of("network", "convolutions")(layers=1, width=8, vocab_size=9)
    with pytest.raises(AttributeError) as raised:
        _ = network.vector_tables
    message, code = describe_error(raised.value)
    line = file.read_text(encoding="utf-8").splitlines().index("        return self.embeddings.rows") + 1
    assert (message, code) == (
        f"{file}:{line}: in token_tables: AttributeError: 'NoneType' object has no attribute 'rows'\n"
        "  CLOZE_DEBUG=1 shows the traceback.", 2,
    )  # fmt: skip


def commands(heading: str) -> Iterator[Block]:
    """The shell blocks after a heading of the page."""
    text = PAGE.read_text(encoding="utf-8")
    start = text.count("\n", 0, text.index(heading)) + 1
    return (block for block in test_tour.blocks(text) if block.language == "sh" and block.line > start)


@pytest.mark.slow
def test_the_network_of_the_page_is_trained_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(test_tour, "STEPS", "2steps")
    write_network(tmp_path)
    recipe = code_with("name: my-network")
    assert SIZES[0] in recipe
    Path("my_network.yaml").write_text(recipe.replace(*SIZES), encoding="utf-8")
    text = (Path(cloze.__file__).parent / "samples" / "english.txt").read_text(encoding="utf-8")
    Path("text.txt").write_text(text, encoding="utf-8")
    for name in ("train", "dev"):
        rows = [f"a {('fine', 'dull')[n % 2]} film {n // 2}\t{('good', 'bad')[n % 2]}" for n in range(8)]
        Path(f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n", encoding="utf-8")
    for block in commands("### A network of your own"):
        run_commands(block, capsys)
    assert not Path("published/config.json").exists() and Path("published/cloze/network.safetensors").is_file()
    assert main(["export", "my-classifier", "m.onnx", "--to", "onnx", "--with", "my_network.py"]) == 2


@pytest.mark.slow
def test_the_edit_and_the_objective_of_the_page_are_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    parts, recipe = with_parts(tmp_path)
    english = str(Path(cloze.__file__).parent / "samples" / "english.txt")
    assert main(["pretrain", str(recipe), "--with", str(parts), "--corpus", english, "--budget", "2steps", "--out", "run"]) == 0
